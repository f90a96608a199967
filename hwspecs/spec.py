"""The form of all types of machine files: frozen, quantities with units, attributes in base units.

Attributes are plain numbers in base units, which end their names: `clock_hz`, `capacity_bytes`,
`latency_cycles`. In a file the key lacks that ending and the value carries its unit.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from hwspecs import units
from hwspecs.errors import RuleError

_UNIT_ENDING = re.compile(r"_(hz|bytes_per_s|bytes|cycles|beats|flits|ps)$")


def key(attribute: str) -> str:
    """The key of an attribute in a file: its name without its unit."""
    return _UNIT_ENDING.sub("", attribute)


_QUANTITIES = {
    "hz": units.FREQUENCY,
    "bytes_per_s": units.RATE,
    "bytes": units.SIZE,
    "cycles": units.DURATION,
    "beats": units.DEPTH,
    "flits": units.FLITS,
    "ps": units.TIME,
}


def written(attribute: str, value: Any) -> str:
    """What a file has as the value of an attribute.

    >>> written("capacity_bytes", 262144), written("tck_ps", 1250), written("lanes", 16)
    ('256 KiB', '1.25 ns', '16')
    """
    ending = _UNIT_ENDING.search(attribute)
    return units.text(value, _QUANTITIES[ending[1]]) if ending else str(value)


def _quantity(quantity: units.Quantity) -> Any:
    def parse(value: object, info: ValidationInfo) -> int | float:
        from_file = bool(info.context and info.context.get("from_file"))
        if not from_file and isinstance(value, int | float) and not isinstance(value, bool):
            return units.number(value, quantity)
        return units.parse(value, quantity)

    return BeforeValidator(parse)


def _text_schema(quantity: units.Quantity) -> WithJsonSchema:
    example = [quantity.example]
    return WithJsonSchema({"type": "string", "pattern": quantity.pattern, "examples": example})


def power_of_two(value: int) -> int:
    """Return `value`; RuleError where it is no power of two."""
    if value & (value - 1):
        raise RuleError("a power of two", f"{1 << value.bit_length() - 1} is the nearest below")
    return value


Hertz = Annotated[float, _quantity(units.FREQUENCY), _text_schema(units.FREQUENCY)]
Bytes = Annotated[int, _quantity(units.SIZE), _text_schema(units.SIZE)]
BytesPerSecond = Annotated[float, _quantity(units.RATE), _text_schema(units.RATE)]
Cycles = Annotated[int, _quantity(units.DURATION), _text_schema(units.DURATION)]
Beats = Annotated[int, _quantity(units.DEPTH), _text_schema(units.DEPTH)]
Flits = Annotated[int, _quantity(units.FLITS), _text_schema(units.FLITS)]
Picoseconds = Annotated[int, _quantity(units.TIME), _text_schema(units.TIME)]
Count = Annotated[int, Field(strict=True, ge=1, le=65536)]
Width = Annotated[int, Field(strict=True, ge=1, le=1024)]
Side = Annotated[int, Field(strict=True, ge=1, le=512)]
Stages = Annotated[int, Field(strict=True, ge=0, le=1024)]
Name = Annotated[str, Field(strict=True, pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=400)]


class Spec(BaseModel):
    """Common settings: frozen, no unknown keys, keys are attribute names without their unit."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=key,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )
