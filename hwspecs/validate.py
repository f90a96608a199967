"""Checks located data against pydantic types and words every fault with its place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from hwspecs.errors import GIVEN, Fault, RuleError, SpecError
from hwspecs.located_yaml import Located, PathOf
from hwspecs.spec import key

Model = TypeVar("Model", bound=BaseModel)

_MAX_FAULTS = 100
_MAX_SHOWN = 60

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_unicode": "printable text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "none_required": "null",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "at least {min_length} long",
    "too_long": "at most {max_length} long",
}


def check(model_cls: type[Model], located: Located) -> Model:
    """Return `located` as a `model_cls`; keys are its aliases, quantities must carry units.

    Raises SpecError with the faults of the reader and of every value, one line each:
    `file:line:column: path must be <expected>, got <found>; did you mean <nearest>?`.
    """
    try:
        model = model_cls.model_validate(
            located.content, context={"from_file": True}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        faults = _merged(error.errors(include_url=False), model_cls, located)
        # Where the reader left a hole (an alias, say) the hole itself is no second fault.
        known = {(fault.line, fault.column) for fault in located.faults}
        faults = [fault for fault in faults if (fault.line, fault.column) not in known]
        raise SpecError(_shortened([*located.faults, *faults])) from error
    if located.faults:
        raise SpecError(_shortened(located.faults))
    return model


def _shortened(faults: Iterable[Fault]) -> list[Fault]:
    ordered = sorted(set(faults))
    if len(ordered) <= _MAX_FAULTS:
        return ordered
    last = ordered[_MAX_FAULTS - 1]
    more = f"and the rest of the file has {len(ordered) - _MAX_FAULTS} more faults"
    return [*ordered[:_MAX_FAULTS], Fault(last.source, last.line, last.column + 1, "", more)]


def _merged(
    errors: Iterable[Mapping[str, Any]], root: type[BaseModel], located: Located
) -> list[Fault]:
    """One fault a place: the branches of a union that all fail say "must be A or B"."""
    rules: dict[tuple[PathOf, bool, str], dict[str, str]] = {}
    for error in errors:
        # A default that needs a faulty neighbour; the neighbour has its own fault.
        if error["type"] == "default_factory_not_called" or _only_faulty(error):
            continue
        missing = error["type"] == "missing" or _by_rule(error) == GIVEN
        path = _path_in(located.content, error["loc"], missing)
        siblings = _siblings(root, path[:-1])
        if missing and path[-1] not in siblings:
            path = (*path[:-1], key(str(path[-1])))  # missing by a rule: told by its attribute
        rule, hint = _rule(error, siblings)
        at_key = error["type"] == "extra_forbidden" or error["loc"][-1:] == ("[key]",)
        found = "nothing" if missing else show(error["input"])
        if at_key:
            found = "the key " + show(path[-1] if path else "")
        rules.setdefault((path, at_key, found), {})[rule] = hint
    faults = []
    for (path, at_key, found), said in rules.items():
        hint = next(filter(None, said.values()), "")
        message = f"must be {' or '.join(said)}, got {found}{'; ' + hint if hint else ''}"
        faults.append(located.fault(path, message, at_key=at_key))
    return faults


def _only_faulty(error: Mapping[str, Any]) -> bool:
    """Whether a list is too short only without its faulty items, which have faults of their own."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _by_rule(error: Mapping[str, Any]) -> str:
    """The rule of ours that an error breaks, or ''."""
    cause = error.get("ctx", {}).get("error")
    return cause.rule if isinstance(cause, RuleError) else ""


def _path_in(content: Any, loc: tuple[int | str, ...], missing: bool) -> PathOf:
    """Drop from pydantic's location what is no step in the data, such as a union's branch."""
    path: list[int | str] = []
    for index, step in enumerate(loc):
        if _holds(content, step):
            content = content[step]
        elif not (missing and index == len(loc) - 1):
            continue
        path.append(step)
    return tuple(path)


def _holds(content: Any, step: int | str) -> bool:
    if isinstance(content, dict):
        return step in content
    return isinstance(content, list) and isinstance(step, int) and step < len(content)


def _rule(error: Mapping[str, Any], siblings: tuple[str, ...]) -> tuple[str, str]:
    """What the value must be, and a hint or ''."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "given", ""
    if kind == "extra_forbidden":
        return f"one of the keys {', '.join(siblings)}", did_you_mean(error["loc"][-1], siblings)
    if kind in ("literal_error", "enum"):
        expected = str(context["expected"])
        choices = [part.strip("' ") for part in expected.replace(" or ", ", ").split(",")]
        return f"one of {', '.join(choices)}", did_you_mean(error["input"], choices)
    cause = context.get("error")
    if isinstance(cause, RuleError):
        return cause.rule, cause.hint
    if kind in _EXPECTED:
        return _EXPECTED[kind].format(**context), ""
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return said.removeprefix("must be "), ""


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """`did you mean X?` with the nearest of `choices`, or ''.

    >>> did_you_mean("colums", ["rows", "columns"])
    'did you mean columns?'
    """
    if not isinstance(word, str):
        return ""
    folded = {choice.lower(): choice for choice in choices}
    near = get_close_matches(word[:_MAX_SHOWN].lower(), folded, n=1, cutoff=0.6)
    return f"did you mean {folded[near[0]]}?" if near else ""


def show(value: object) -> str:
    """A value as a message quotes it: short, printable, on one line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _siblings(root: type[BaseModel], path: PathOf) -> tuple[str, ...]:
    """The keys that the types allow in the mapping at `path`."""
    models = [root]
    for step in path:
        inside: list[type[BaseModel]] = []
        for model in models:
            for name, info in model.model_fields.items():
                if (info.alias or name) == step:
                    inside += _models_in(info.annotation)
        # A step that no field is named after is a key of a free mapping or an index of a list.
        models = inside or models
    return tuple(dict.fromkeys(_keys(models)))


def _keys(models: list[type[BaseModel]]) -> Iterable[str]:
    for model in models:
        for name, info in model.model_fields.items():
            yield info.alias or name


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
