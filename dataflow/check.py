"""Judges what a machine computed against float64, by a bound that follows from its number types.

Rule. The same graph is evaluated in float64 once as it stands (the reference) and `TRIALS` times
with a random error at every node, as large as the machine's rounding there may be:

* A value that is rounded to the data type: x (1 + u_data e), with e uniform in [-1, 1].
* A sum of K terms kept in the accumulate type: x + e sqrt(K) u_acc sum |terms| besides. That is
  the bound of Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis" (SIAM J.
  Sci. Comput. 41, 2019), which holds for any order of summation.
* Inputs are rounded before either side sees them; selections, comparisons, signs, maxima and moves
  are exact. None of these has an error of its own.

u is half the distance from 1 to the next number of a type. Each trial gives the largest and the
root mean square deviation of an output. Both errors of the machine's output must be at most
1.5 times the largest of the trials plus 4 of their standard deviations: where an output has many
elements the trials agree and that is 1.5 times, where it has one it is about 5 sigma. Where a type
has subnormals too small for the trials, `SUBNORMALS` of the smallest are allowed besides for each
rounding on the way to an output: no rounding near 0 is relative. The model is
that of Monte Carlo arithmetic (Parker, 1997): a true rounding is no larger than the random one,
and how errors grow or cancel follows the graph.

A zero, stale or misplaced output is off by the size of the output itself, orders above the bound.
Where it would not be (a chaotic recurrence in 8 bits) the check proves nothing, and says so:
`decisive` is false, and the values do not count as checked. It proves nothing either where a value
of the graph as run is beyond the range of the data type, since the machine then saturates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import FaultsError
from dataflow.nodes import Graph, Node, recurrences
from dataflow.number_types import finfo, numpy_type
from dataflow.ops import contracted, elements_of
from dataflow.reference import evaluate, node_values, stored

Array = NDArray[Any]

TRIALS = 8
LIMIT_ELEMS = 2**27  # of all values of the perturbed graph: 1 GiB in float64

# Pointwise operations whose result is one of their arguments, or 0 or 1: nothing to round.
_EXACT = {"identity", "max", "min", "neg", "abs", "relu", "where"}
_EXACT |= {"lt", "le", "gt", "ge", "eq", "logical_and"}
SUBNORMALS = 2  # smallest numbers of a type allowed for each rounding
SMALLEST_COUNTED = 1e-12  # a type whose least number is smaller has no grid worth counting


class CheckError(FaultsError):
    """The reference cannot be had: the sizes are too large for a dense evaluation."""


@dataclass(frozen=True)
class OutputCheck:
    """One output beside its reference: absolute errors and their bounds.

    `size` is the root mean square of the reference; `decisive` says whether the check could have
    failed an output of zeros.
    """

    name: str
    max_abs_error: float
    bound: float
    rms_error: float
    rms_bound: float
    size: float
    decisive: bool
    passed: bool


@dataclass(frozen=True)
class Check:
    """The verdict over all outputs; `reference` says what they were compared with.

    `beyond` says which values the data type cannot hold, and is empty where it holds them all.
    """

    outputs: tuple[OutputCheck, ...]
    reference: str
    beyond: str = ""

    @property
    def passed(self) -> bool:
        """Whether every output is within its bounds."""
        return all(output.passed for output in self.outputs)

    @property
    def decisive(self) -> bool:
        """Whether the type holds every value and every output's check could have failed zeros."""
        return not self.beyond and all(output.decisive for output in self.outputs)

    @property
    def failed(self) -> bool:
        """Whether an output is beyond its bounds though the data type holds every value."""
        return not (self.passed or self.beyond)

    @property
    def undecided_because(self) -> str:
        """Why the check proves nothing; empty where it is decisive."""
        reason = self.beyond or "rounding alone may move them by their size"
        return "" if self.decisive else reason

    @property
    def worst(self) -> OutputCheck:
        """The output whose largest error is nearest to its bound, or furthest beyond."""
        return max(self.outputs, key=lambda o: (not o.passed, _ratio(o.max_abs_error, o.bound)))


def _ratio(error: float, bound: float) -> float:
    if bound > 0:
        return error / bound
    return math.inf if error else 0.0


def unit_roundoff(data_type: str) -> float:
    """Return the largest relative error of rounding to a type: half its epsilon.

    >>> unit_roundoff("fp32") == 2.0**-24
    True
    """
    return float(finfo(data_type).eps) / 2


def largest_of(data_type: str) -> float:
    """Return the largest finite number of a type.

    >>> largest_of("fp8_e4m3")
    448.0
    """
    return float(finfo(data_type).max)


def round_to(array: Any, data_type: str) -> Array:
    """Return float64 values rounded to `data_type`, as the machine's arithmetic does it.

    Beyond the largest number fp8 stays at the largest; the other types go to infinity.
    """
    values = np.asarray(array, dtype=np.float64)
    if data_type == "fp8_e4m3":
        values = np.clip(values, -largest_of(data_type), largest_of(data_type))
    with np.errstate(all="ignore"):
        return values.astype(numpy_type(data_type)).astype(np.float64)


def perturbed(
    graph: Graph, data_type: str, accumulate_type: str
) -> tuple[Graph, dict[str, tuple[float, float]]]:
    """Return `graph` with extra inputs that disturb every value that a machine rounds.

    The second result gives each extra input its centre and half width: it is drawn uniformly from
    there, and at the centres the values are those of `graph`.
    """
    names: dict[str, str] = {}  # value -> what its readers read instead
    spreads: dict[str, tuple[float, float]] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        added = [node, *_disturbed(node, graph, data_type, accumulate_type, spreads)]
        nodes += added
        names[node.name] = added[-1].name
    return Graph(
        graph.name,
        graph.axes,
        tuple(_renamed(node, names) for node in nodes),
        tuple(replace(output, node=names[output.node]) for output in graph.outputs),
    ), spreads


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Make a node read the disturbed values; what was added around it reads the raw ones."""
    if node.name not in names:
        return node
    init = names[node.init] if isinstance(node.init, str) else node.init
    return replace(node, args=tuple(names[arg] for arg in node.args), init=init)


def _disturbed(
    node: Node,
    graph: Graph,
    data_type: str,
    accumulate_type: str,
    spreads: dict[str, tuple[float, float]],
) -> list[Node]:
    """Return the nodes that add a node's rounding error to it, the last of them the result."""
    name, axes = node.name, node.axes
    sums = contracted(node, graph) if node.op == "einsum" or node.fn == "sum" else ()
    added: list[Node] = []
    if sums:
        sizes = [
            Node(f"{name} |{a}|", "map", graph.node(a).axes, (a,), fn="abs") for a in node.args
        ]
        total = replace(node, name=f"{name} size", args=tuple(size.name for size in sizes))
        error = Node(f"{name} sum error", "input", axes)
        product = Node(f"{name} lost", "map", axes, (total.name, error.name), fn="mul")
        summed = Node(f"{name} summed", "map", axes, (name, product.name), fn="add")
        added += [*sizes, total, error, product, summed]
        terms = math.prod(graph.shape(sums))
        spreads[error.name] = (0.0, math.sqrt(terms) * unit_roundoff(accumulate_type))
    if not _is_rounded(node, graph, data_type):
        return added
    before = added[-1].name if added else name
    factor = Node(f"{name} rounding", "input", axes)
    rounded = Node(f"{name} rounded", "map", axes, (before, factor.name), fn="mul")
    spreads[factor.name] = (1.0, unit_roundoff(data_type))
    added += [factor, rounded]
    smallest = float(finfo(data_type).smallest_subnormal)
    if smallest > SMALLEST_COUNTED:  # narrow types: numbers near 0 are rounded to a fixed grid
        grid = Node(f"{name} grid", "input", axes)
        spreads[grid.name] = (0.0, smallest / 2)
        added += [grid, Node(f"{name} stored", "map", axes, (rounded.name, grid.name), fn="add")]
    return added


def _is_rounded(node: Node, graph: Graph, data_type: str) -> bool:
    if node.op == "const" and node.fn == "number":
        return bool(round_to(node.fill, data_type) != node.fill)
    if node.op == "const" and node.fn == "affine":  # whole numbers are exact up to 1 / u
        form = node.index[0]
        reach = sum(abs(factor) * graph.extent(axis) for axis, factor in form.terms)
        return reach + abs(form.constant) > 1 / unit_roundoff(data_type)
    return (
        node.op in ("const", "einsum")
        or (node.op == "map" and node.fn not in _EXACT)
        or (node.op == "reduce" and node.fn == "sum")
    )


def check(
    graph: Graph,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    data_type: str,
    accumulate_type: str,
    plain: Graph | None = None,
) -> Check:
    """Compare `outputs` of a run of `graph` on `inputs` with float64, by the rule above.

    `inputs` are taken as already rounded to the data type. `plain` is the same kernel before its
    rewrites: where given, and small enough, it is the reference, so that the rewrites are checked
    too. Raises CheckError where a dense evaluation would not fit.
    """
    noisy, spreads = perturbed(graph, data_type, accumulate_type)
    size = _elements(noisy)
    if size > LIMIT_ELEMS:
        raise CheckError(
            f"graph {graph.name}: values to check must be at most {LIMIT_ELEMS} elements, got"
            f" {size}; choose smaller sizes, or leave the values out (--no-values)"
        )
    independent = plain is not None and plain != graph and _elements(plain) <= LIMIT_ELEMS
    values = node_values(graph, inputs)
    own = stored(graph, values)
    exact = evaluate(plain, inputs) if plain is not None and independent else own
    beyond = _beyond(values, data_type)
    steady = _steady(noisy, spreads)
    deviations: dict[str, list[Array]] = {name: [] for name in exact}
    for trial in range(TRIALS):
        values = {name: value for name, value in values.items() if name in steady}
        drawn = {**inputs, **_errors(noisy, spreads, trial)}
        values = node_values(noisy, drawn, known=values)
        for name, value in stored(noisy, values).items():
            deviations[name].append(_difference(value, own[name], 0.0))
    floor = _floor(graph, data_type, accumulate_type)
    form = "the plain form" if independent else "the graph as run"
    return Check(
        tuple(_judge(name, outputs[name], exact[name], deviations[name], floor) for name in exact),
        f"float64 NumPy of {form}",
        beyond,
    )


def _steady(graph: Graph, spreads: Mapping[str, tuple[float, float]]) -> set[str]:
    """The nodes that no disturbance reaches: their values are the same in every trial."""
    moved = set(spreads)
    while True:
        more = {n.name for n in graph.nodes if n.name not in moved and moved & {*n.sources}}
        if not more:
            return {node.name for node in graph.nodes} - moved
        moved |= more


def _beyond(values: Mapping[str, Array], data_type: str) -> str:
    """Say which node has most values that `data_type` cannot hold; infinities are held as such."""
    largest = largest_of(data_type)
    counts = {
        name: int(np.count_nonzero(np.isfinite(value) & (np.abs(value) > largest)))
        for name, value in values.items()
    }
    name = max(counts, key=lambda node: counts[node], default="")
    if not name or not counts[name]:
        return ""
    return (
        f"{counts[name]} values of node {name} are beyond the range of {data_type} ({largest:.6g})"
    )


def _floor(graph: Graph, data_type: str, accumulate_type: str) -> float:
    """Return what roundings to subnormals may come to: an absolute error, in an output's unit.

    Types with a coarse grid near 0 are left out: data of such a type has it in the trials.
    """
    steps = {
        node.name: graph.extent(before.axis)
        for group in recurrences(graph)
        for before in group
        if before.op == "earlier"
        for node in group
    }
    roundings = 0
    for node in graph.nodes:
        sums = contracted(node, graph) if node.op == "einsum" or node.fn == "sum" else ()
        if sums or _is_rounded(node, graph, data_type):
            roundings += (math.prod(graph.shape(sums)) + 1) * steps.get(node.name, 1)
    smallest = {float(finfo(kind).smallest_subnormal) for kind in (data_type, accumulate_type)}
    counted = max((size for size in smallest if size <= SMALLEST_COUNTED), default=0.0)
    return SUBNORMALS * counted * roundings


def _elements(graph: Graph) -> int:
    return sum(elements_of(node, graph) for node in graph.nodes)


def _errors(
    graph: Graph, spreads: Mapping[str, tuple[float, float]], trial: int
) -> dict[str, Array]:
    drawn = {}
    for place, (name, (centre, width)) in enumerate(spreads.items()):
        draw = np.random.default_rng([trial, place])
        shape = graph.shape(graph.node(name).axes)
        drawn[name] = draw.uniform(centre - width, centre + width, shape)
    return drawn


def _difference(value: Array, exact: Array, unknown: float) -> Array:
    """Return |value - exact|: 0 where both are the same infinity or NaN, `unknown` where one is."""
    with np.errstate(all="ignore"):
        gap = np.abs(np.asarray(value, dtype=np.float64) - exact)
    if np.isfinite(gap).all():  # as nearly always: a third of the passes over memory
        return gap
    same = (value == exact) | (np.isnan(value) & np.isnan(exact))
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, unknown))


def _judge(
    name: str, value: Array, exact: Array, deviations: list[Array], floor: float
) -> OutputCheck:
    error = _difference(value, exact, math.inf)
    finite = exact[np.isfinite(exact)]
    # The reference's own rounding, and that of a plain form summed in another order.
    own = 64 * unit_roundoff_of_float64() * _largest(finite) + floor
    bound = _limit([_largest(trial) for trial in deviations]) + own
    rms_bound = _limit([_rms(trial) for trial in deviations]) + own
    largest, rms, size = _largest(error), _rms(error), _rms(finite)
    decisive = size == 0 or rms_bound < size  # an output of zeros is off by `size`
    passed = largest <= bound and rms <= rms_bound
    return OutputCheck(name, largest, bound, rms, rms_bound, size, decisive, passed)


def _limit(trials: list[float]) -> float:
    return 1.5 * max(trials) + 4 * float(np.std(trials))


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0.0))


def _rms(array: Array) -> float:
    return math.sqrt(float(np.mean(np.square(array)))) if array.size else 0.0


def unit_roundoff_of_float64() -> float:
    """Return 2^-53, the reference's own relative rounding error."""
    return float(np.finfo(np.float64).eps) / 2
