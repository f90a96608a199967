"""Writes the JSON schema of machine files, which lets editors complete and check them.

`python -m hwspecs.schema` writes `machine.schema.json` beside this file. The schema comes from the
types of `machine.py`; rules between values (burst and interleave, say) only the loader knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hwspecs.machine import Machine

PATH = Path(__file__).with_name("machine.schema.json")


def text() -> str:
    """The schema as the text of its file."""
    schema = Machine.model_json_schema(by_alias=True)
    _drop_plain_defaults(schema)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2) + "\n"


def _drop_plain_defaults(schema: Any) -> None:
    """Defaults and limits are in base units; beside a text with a unit they would mislead."""
    if isinstance(schema, list):
        for part in schema:
            _drop_plain_defaults(part)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "string":
        for key in ("default", "maximum", "minimum"):
            if isinstance(schema.get(key), int | float):
                del schema[key]
    for part in schema.values():
        _drop_plain_defaults(part)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
