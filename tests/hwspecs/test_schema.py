"""The JSON schema for editors."""

import json
import re
from pathlib import Path

import pytest

import hwspecs
from hwspecs import read, schema

FOLDER = Path(hwspecs.__file__).parent


def test_schema_file_is_up_to_date():
    assert schema.PATH.read_text() == schema.text(), "run python -m hwspecs.schema"


def test_schema_keys_are_those_of_the_files():
    top = json.loads(schema.text())
    assert "clock" in top["properties"]
    assert "clock_hz" not in top["properties"]
    assert top["additionalProperties"] is False


@pytest.mark.parametrize("name", hwspecs.names())
def test_schema_takes_every_machine(name):
    top = json.loads(schema.text())
    _walk(read(FOLDER / f"{name}.yaml", "machine").data, top, top)


def _walk(value: object, node: dict, top: dict) -> None:
    """The few rules of JSON schema that ours uses."""
    if "anyOf" in node:  # a part that may be left out
        node, *_ = (choice for choice in node["anyOf"] if choice != {"type": "null"})
    if "$ref" in node:
        node = top["$defs"][node["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        assert set(node.get("required", ())) <= set(value) <= set(node["properties"])
        for key, part in value.items():
            _walk(part, node["properties"][key], top)
    elif isinstance(value, str):
        assert node.get("type", "string") == "string"
        assert re.search(node.get("pattern", ""), value)
        assert value in node.get("enum", [value])
    elif isinstance(value, int):
        assert node["type"] == "integer"
        assert node["minimum"] <= value <= node["maximum"]
    else:
        assert node["type"] == "array"
