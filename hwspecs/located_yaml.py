"""Reads YAML as plain data that remembers the line and column of every key and value.

Understood: mappings with text keys, lists, text, numbers, true, false, null. Left out on purpose:
tags, anchors and aliases (so no alias bombs and nothing is ever evaluated), several documents in
a file. Files are at most 1 MiB of UTF-8, 100,000 values and 32 levels deep. Plain scalars follow
YAML 1.2: `yes`, `on`, `010` and dates are not secretly booleans, octal numbers or dates.

Machine files, schedules and mapping files are all read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hwspecs.errors import Fault, SpecError

MAX_BYTES = 2**20
MAX_VALUES = 100_000
MAX_DEPTH = 32
MAX_DIGITS = 64

PathOf = tuple[str | int, ...]
Place = tuple[int, int]

_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_WORDS |= {word: float("inf") for word in (".inf", "+.inf", ".Inf", ".INF")}
_WORDS |= {"-.inf": float("-inf"), ".nan": float("nan"), ".NaN": float("nan")}


@dataclass(frozen=True)
class Located:
    """A file's content with places (line, column), both counted from 1.

    `faults` are those found while reading that did not stop it, such as a key given twice;
    `hwspecs.validate.check` reports them with its own, and `data` raises them.
    """

    source: str
    content: Any
    value_places: dict[PathOf, Place]
    key_places: dict[PathOf, Place]
    faults: tuple[Fault, ...] = ()

    @property
    def data(self) -> Any:
        """The content as dicts, lists and scalars; raises SpecError if the reader found faults."""
        if self.faults:
            raise SpecError(self.faults)
        return self.content

    def place(self, path: PathOf) -> Place:
        """(line, column) of the value at `path`, or of the nearest enclosing value there is."""
        while path and path not in self.value_places:
            path = path[:-1]
        return self.value_places.get(path, (1, 1))

    def key_place(self, path: PathOf) -> Place:
        """(line, column) of the key that `path` ends with, or else of its value."""
        return self.key_places.get(path) or self.place(path)

    def fault(self, path: PathOf, message: str, at_key: bool = False) -> Fault:
        """A fault at `path`, for callers that check more than types can."""
        line, column = self.key_place(path) if at_key else self.place(path)
        return Fault(self.source, line, column, dotted(path), message)


def dotted(path: PathOf) -> str:
    """A path as people write it.

    >>> dotted(("grid", "pattern", 0))
    'grid.pattern[0]'
    """
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def read(text_or_path: str | Path, what: str) -> Located:
    """Read a file (given a Path) or a text (given a str) of the kind `what`, such as "machine".

    Raises SpecError where the file cannot be read or is no YAML, with the place.
    """
    if isinstance(text_or_path, str):
        source, text = f"<{what} text>", text_or_path
        if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            raise SpecError([_too_large(source, what)])
    else:
        source, text = str(text_or_path), _read_file(text_or_path, what)
    return _Reader(source).read(text)


def write(data: dict[str, Any]) -> str:
    """Return plain dicts, lists and scalars as YAML that `read` takes back.

    >>> print(write({"tile": {"i": 64}, "time": ["i.o"]}), end="")
    tile: {i: 64}
    time: [i.o]
    """
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: the reader takes none."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _too_large(source: str, what: str) -> Fault:
    return Fault(source, 0, 0, "", f"a {what} file must be at most {MAX_BYTES} bytes")


def _read_file(path: Path, what: str) -> str:
    source = str(path)
    try:
        if path.exists() and not path.is_file():
            raise SpecError([Fault(source, 0, 0, "", f"a {what} must be a plain file")])
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except SpecError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError([Fault(source, 0, 0, "", f"must be readable, got: {reason}")]) from error
    if len(raw) > MAX_BYTES:
        raise SpecError([_too_large(source, what)])
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8")
        line, column = _line_column(good, len(good))
        message = f"must be UTF-8 text, got byte 0x{raw[error.start]:02x}"
        raise SpecError([Fault(source, line, column, "", message)]) from error


def _line_column(text: str, index: int) -> Place:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet."""

    content: dict[str, Any] | list[Any]
    path: PathOf
    key: str | None = None
    skipped: bool = False


@dataclass
class _Reader:
    """Builds the content from parser events without recursion, so depth cannot overflow."""

    source: str
    faults: list[Fault] = field(default_factory=list)
    value_places: dict[PathOf, Place] = field(default_factory=dict)
    key_places: dict[PathOf, Place] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    root: Any = None
    documents: int = 0

    def read(self, text: str) -> Located:
        count = 0
        for event in self._events(text):
            count += isinstance(event, yaml.NodeEvent)
            if count > MAX_VALUES:
                self._stop(event, f"a file must hold at most {MAX_VALUES} values")
            self._take(event)
        return Located(
            self.source, self.root, self.value_places, self.key_places, tuple(self.faults)
        )

    def _events(self, text: str) -> Iterator[yaml.Event]:
        loader: yaml.SafeLoader | None = None
        try:
            loader = yaml.SafeLoader(text)
            while loader.check_event():
                yield loader.get_event()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            said = " ".join(filter(None, (error.context, error.problem)))
            self._refuse(place, f"must be YAML, got: {said}", error)
        except yaml.reader.ReaderError as error:
            place = _line_column(text, error.position)
            character = error.character
            code = ord(character) if isinstance(character, str) else int(character)
            self._refuse(place, f"must be printable text, got character #x{code:04x}", error)
        except (ValueError, OverflowError) as error:
            if isinstance(error, SpecError):
                raise
            # PyYAML lets int() and chr() complain of an escape such as "\\UFFFFFFFF".
            place = _line_column(text, loader.index) if loader else (1, 1)
            self._refuse(place, "must be YAML, got a number or escape out of range", error)

    def _refuse(self, place: Place, message: str, cause: Exception) -> None:
        raise SpecError([*self.faults, Fault(self.source, *place, "", message)]) from cause

    def _stop(self, event: yaml.Event, message: str) -> None:
        raise SpecError([*self.faults, Fault(self.source, *_place(event), "", message)])

    def _fault(self, event: yaml.Event, message: str) -> None:
        path = dotted(self._path()) if self.stack else ""
        self.faults.append(Fault(self.source, *_place(event), path, message))

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop(event, "a file must hold one document, got a second one")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)

    def _node(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._fault(event, f"must be written out, got the alias '*{event.anchor}'")
            self._value(event, None)
            return
        if getattr(event, "tag", None) not in (None, "!"):
            self._fault(event, f"must have no tag, got '{event.tag}'")  # type: ignore[attr-defined]
        if event.anchor is not None:
            self._fault(event, f"must have no anchor, got '&{event.anchor}'")
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
            return
        if len(self.stack) >= MAX_DEPTH:
            self._stop(event, f"values must be nested at most {MAX_DEPTH} deep")
        opened = _Open({} if isinstance(event, yaml.MappingStartEvent) else [], ())
        opened.path = self._value(event, opened.content)
        self.stack.append(opened)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self.stack[-1] if self.stack else None
        if top and isinstance(top.content, dict) and top.key is None:
            self._key(event, top, event.value)
            return
        if event.style or (event.tag and event.tag != "!"):
            self._value(event, event.value)
        else:
            self._value(event, self._plain(event))

    def _key(self, event: yaml.Event, top: _Open, key: str) -> None:
        top.key = key
        assert isinstance(top.content, dict)
        if key in top.content:
            line, _ = self.key_places[(*top.path, key)]
            self._fault(event, f"must be given once, got a second one; the first is on line {line}")
            # The first one stays; the second is read only to get past it.
            top.skipped = True
            return
        self.key_places[(*top.path, key)] = _place(event)

    def _plain(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if len(text) <= MAX_DIGITS and _INT.fullmatch(text):
            return int(text)
        if len(text) <= MAX_DIGITS and _FLOAT.fullmatch(text):
            return float(text)
        return text

    def _path(self) -> PathOf:
        top = self.stack[-1]
        if isinstance(top.content, list):
            return (*top.path, len(top.content))
        return top.path if top.key is None else (*top.path, top.key)

    def _value(self, event: yaml.Event, value: Any) -> PathOf:
        """Put `value` where it belongs and return its path."""
        if not self.stack:
            self.root = value
            self.value_places[()] = _place(event)
            return ()
        top, path = self.stack[-1], self._path()
        if isinstance(top.content, list):
            top.content.append(value)
        elif top.key is None:
            self._fault(event, f"a key must be plain text, got {type(value).__name__}")
            top.key, top.skipped = "", True
            return (*path, "?")
        else:
            skipped, key = top.skipped, top.key
            top.key, top.skipped = None, False
            if skipped:
                return (*path, "?")
            top.content[key] = value
        self.value_places[path] = _place(event)
        return path


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    assert mark is not None, "the parser marks every event"
    return mark.line + 1, mark.column + 1
