"""Machines as data: types, loader and machine files. See README.md."""

from hwspecs.errors import Fault, RuleError, SpecError
from hwspecs.load import load, names
from hwspecs.located_yaml import Located, read, write
from hwspecs.machine import Machine
from hwspecs.validate import check, did_you_mean

__all__ = [
    "Fault",
    "Located",
    "Machine",
    "RuleError",
    "SpecError",
    "check",
    "did_you_mean",
    "load",
    "names",
    "read",
    "write",
]
