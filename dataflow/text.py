"""Graphs as readable text that parses back to the same graph.

One statement a line; `#` starts a comment; axes are split by spaces, the rest by commas:

    graph NAME
    axis NAME = EXTENT
    NAME[AXES] = input
    NAME[AXES] = const number 0.5
    NAME[AXES] = const affine [FORM]
    NAME[AXES] = const cos_turn [FORM, ...] period 64 scale 0.5      (or sin_turn, cas_turn)
    NAME[AXES] = map FN(ARG, ...)
    NAME[AXES] = einsum(ARG, ...)
    NAME[AXES] = reduce FN(ARG)
    NAME[AXES] = mask(ARG) where [FORM] fill -inf
    NAME[AXES] = read(ARG) at [FORM, ...] fill 0.0
    NAME[AXES] = earlier(ARG) along AXIS init 0.0                    (or: init node NAME)
    NAME[AXES] = last(ARG) along AXIS
    output NAME[AXES] = NODE at [FORM, ...] merge add

`fill` and `init` of 0, a `scale` of 1 and an empty `merge` may be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dataflow.errors import FaultsError, did_you_mean
from dataflow.index import NAME, Affine, AffineError, parse_affine
from dataflow.nodes import OPS, Graph, GraphError, Node, Output
from dataflow.verify import verify

_NUMBER = r"[+-]?(?:inf|nan|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
_NODE_FAULT = re.compile(rf"(?:node|output) ({NAME}): ")


class TextError(FaultsError):
    """A text that is no graph; each fault names its line and column."""


def to_text(graph: Graph) -> str:
    """Return the text of a verified graph, so that `parse(to_text(graph)) == graph`."""
    lines = [f"graph {graph.name}", ""]
    lines += [f"axis {axis} = {extent}" for axis, extent in graph.axes.items()]
    lines.append("")
    lines += [f"{n.name}[{' '.join(n.axes)}] = {_node_text(n)}" for n in graph.nodes]
    lines.append("")
    for output in graph.outputs:
        merge = f" merge {output.merge}" if output.merge else ""
        place = f"{output.node} at {_forms_text(output.index)}{merge}"
        lines.append(f"output {output.name}[{' '.join(output.axes)}] = {place}")
    return "\n".join(lines) + "\n"


def _node_text(node: Node) -> str:
    args, forms = f"({', '.join(node.args)})", _forms_text(node.index)
    fill = f" fill {float(node.fill)!r}" if node.fill else ""
    if node.op == "const" and node.fn == "number":
        return f"const number {float(node.fill)!r}"
    if node.op == "const" and node.fn == "affine":
        return f"const affine {forms}"
    if node.op == "const":
        scale = "" if node.scale == 1 else f" scale {float(node.scale)!r}"
        return f"const {node.fn} {forms} period {node.period}{scale}"
    if node.op in ("map", "reduce"):
        return f"{node.op} {node.fn}{args}"
    if node.op == "mask":
        return f"mask{args} where {forms}{fill}"
    if node.op == "read":
        return f"read{args} at {forms}{fill}"
    if node.op == "earlier":
        named = isinstance(node.init, str)
        init = f" init node {node.init}" if named else f" init {float(node.init)!r}"
        return f"earlier{args} along {node.axis}{init if named or node.init else ''}"
    if node.op == "last":
        return f"last{args} along {node.axis}"
    return f"{node.op}{args}" if node.args else node.op


def _forms_text(forms: tuple[Affine, ...]) -> str:
    return f"[{', '.join(str(form) for form in forms)}]"


def parse(text: str) -> Graph:
    """Return the verified graph that `text` writes.

    Raises TextError with all faults, each at its line and column; what breaks a rule of graphs
    is reported at the line of its node.
    """
    name, extents, nodes, outputs = "", {}, [], []
    lines: dict[str, int] = {}
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        cursor = _Cursor(line.partition("#")[0], number)
        try:
            if cursor.at_end():
                continue
            statement = _statement(cursor)
            cursor.end()
        except TextError as error:
            faults += error.faults
            continue
        if isinstance(statement, str):
            if name:
                faults.append(f"line {number}, column 1: graph must be named once, got it again")
            name = statement
        elif isinstance(statement, Node):
            nodes.append(statement)
            lines.setdefault(f"node {statement.name}: ", number)
        elif isinstance(statement, Output):
            outputs.append(statement)
            lines.setdefault(f"output {statement.name}: ", number)
        elif statement[0] in extents:
            faults.append(f"line {number}, column 6: axis must be new, got {statement[0]!r} again")
        else:
            extents[statement[0]] = statement[1]
    if not name and not faults:
        faults.append("line 1, column 1: the text must name its graph, got no graph NAME")
    if faults:
        raise TextError(faults)
    try:
        return verify(Graph(name, extents, tuple(nodes), tuple(outputs)))
    except GraphError as error:
        raise TextError([_placed(fault, lines) for fault in error.faults]) from None


def _placed(fault: str, lines: dict[str, int]) -> str:
    """Return a fault with the line of the node or output that it names."""
    found = _NODE_FAULT.search(fault)
    line = lines.get(found.group(0)) if found else None
    return f"line {line}, column 1: {fault}" if line else f"line 1, column 1: {fault}"


class _Cursor:
    """A place in one line of text."""

    def __init__(self, line: str, number: int):
        self.line, self.number, self.at = line, number, 0

    def take(self, pattern: str) -> str | None:
        """Return the text that matches here (leading space skipped), and step over it."""
        found = re.compile(rf"\s*({pattern})").match(self.line, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group(1)

    def need(self, pattern: str, what: str, hint: str = "") -> str:
        """Return the text that matches here; TextError where none does."""
        taken = self.take(pattern)
        if taken is None:
            raise self.error(what, hint)
        return taken

    def word(self, word: str) -> bool:
        """Whether `word` stands here as a whole word; steps over it."""
        return self.take(rf"{word}(?![\w.])") is not None

    def at_end(self) -> bool:
        return not self.line[self.at :].strip()

    def end(self) -> None:
        if not self.at_end():
            raise self.error("the end of the line")

    def error(self, what: str, hint: str = "") -> TextError:
        rest = self.line[self.at :]
        column = self.at + len(rest) - len(rest.lstrip()) + 1
        got = repr(rest.strip()[:20]) if rest.strip() else "the end of the line"
        tail = f"; {hint}" if hint else ""
        where = f"line {self.number}, column {column}"
        return TextError(f"{where}: the text must go on with {what}, got {got}{tail}")


def _statement(cursor: _Cursor) -> str | tuple[str, int] | Node | Output:
    start = cursor.at
    if cursor.word("graph") and not cursor.take(r"\["):
        return cursor.need(NAME, "the graph's name")
    cursor.at = start
    if cursor.word("axis") and not cursor.take(r"\["):
        axis = cursor.need(NAME, "an axis name")
        cursor.need("=", "=")
        return axis, int(cursor.need(r"\d{1,18}(?!\d)", "a whole number"))
    cursor.at = start
    if cursor.word("output") and not cursor.take(r"\["):
        name, axes = _head(cursor)
        node = cursor.need(NAME, "a node name")
        cursor.need("at", "at")
        index = _forms(cursor)
        merge = cursor.need(NAME, "add or max") if cursor.word("merge") else ""
        return Output(name, node, axes, index, merge)
    cursor.at = start
    name, axes = _head(cursor)
    before = cursor.at
    op = cursor.take(NAME) or ""
    if op not in _TAILS:
        cursor.at = before
        raise cursor.error("an operation", did_you_mean(op, OPS))
    return _TAILS[op](cursor, name, axes)


def _head(cursor: _Cursor) -> tuple[str, tuple[str, ...]]:
    name = cursor.need(NAME, "a name")
    cursor.need(r"\[", "[ and axes")
    axes = []
    while not cursor.take(r"\]"):
        axes.append(cursor.need(NAME, "an axis name or ]"))
    cursor.need("=", "=")
    return name, tuple(axes)


def _args(cursor: _Cursor) -> tuple[str, ...]:
    cursor.need(r"\(", "( and arguments")
    args = [cursor.need(NAME, "a node name")]
    while not cursor.take(r"\)"):
        cursor.need(",", ", or )")
        args.append(cursor.need(NAME, "a node name"))
    return tuple(args)


def _forms(cursor: _Cursor) -> tuple[Affine, ...]:
    cursor.need(r"\[", "[ and affine forms")
    forms: list[Affine] = []
    while not cursor.take(r"\]"):
        if forms:
            cursor.need(",", ", or ]")
        before = cursor.at
        text = cursor.need(r"[^],]+", "an affine form or ]")
        try:
            forms.append(parse_affine(text))
        except AffineError as error:
            cursor.at = before
            raise cursor.error("an affine form", str(error)) from None
    return tuple(forms)


def _number(cursor: _Cursor) -> float:
    return float(cursor.need(_NUMBER, "a number"))


def _fill(cursor: _Cursor) -> float:
    return _number(cursor) if cursor.word("fill") else 0.0


def _const(cursor: _Cursor, name: str, axes: tuple[str, ...]) -> Node:
    fn = cursor.need(NAME, "a kind of const")
    if fn == "number":
        return Node(name, "const", axes, fn=fn, fill=_number(cursor))
    index = _forms(cursor)
    if not cursor.word("period"):
        return Node(name, "const", axes, fn=fn, index=index)
    period = int(cursor.need(r"\d{1,18}(?!\d)", "a whole number"))
    scale = _number(cursor) if cursor.word("scale") else 1.0
    return Node(name, "const", axes, fn=fn, index=index, period=period, scale=scale)


def _named(op: str) -> Callable[[_Cursor, str, tuple[str, ...]], Node]:
    """Return the reader of `map FN(ARGS)` or `reduce FN(ARG)`."""

    def read(cursor: _Cursor, name: str, axes: tuple[str, ...]) -> Node:
        fn = cursor.need(NAME, "an operation's name")
        return Node(name, op, axes, _args(cursor), fn=fn)

    return read


def _indexed(op: str, joint: str) -> Callable[[_Cursor, str, tuple[str, ...]], Node]:
    """Return the reader of `read(ARG) at FORMS fill X` or `mask(ARG) where FORMS fill X`."""

    def read(cursor: _Cursor, name: str, axes: tuple[str, ...]) -> Node:
        args = _args(cursor)
        cursor.need(rf"{joint}(?![\w.])", joint)
        index = _forms(cursor)
        return Node(name, op, axes, args, index=index, fill=_fill(cursor))

    return read


def _along(cursor: _Cursor) -> str:
    cursor.need(r"along(?![\w.])", "along")
    return cursor.need(NAME, "an axis name")


def _earlier(cursor: _Cursor, name: str, axes: tuple[str, ...]) -> Node:
    args, axis = _args(cursor), _along(cursor)
    init: float | str = 0.0
    if cursor.word("init"):
        named = cursor.word("node")
        init = cursor.need(NAME, "a node name") if named else _number(cursor)
    return Node(name, "earlier", axes, args, axis=axis, init=init)


def _last(cursor: _Cursor, name: str, axes: tuple[str, ...]) -> Node:
    return Node(name, "last", axes, _args(cursor), axis=_along(cursor))


_TAILS: dict[str, Callable[[_Cursor, str, tuple[str, ...]], Node]] = {
    "input": lambda cursor, name, axes: Node(name, "input", axes),
    "const": _const,
    "map": _named("map"),
    "einsum": lambda cursor, name, axes: Node(name, "einsum", axes, _args(cursor)),
    "reduce": _named("reduce"),
    "mask": _indexed("mask", "where"),
    "read": _indexed("read", "at"),
    "earlier": _earlier,
    "last": _last,
}
