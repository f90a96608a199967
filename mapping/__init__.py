"""Puts kernels onto machines: see README.md."""

from mapping.bounds import Bound, bound, program_bound
from mapping.default_schedule import default_schedule
from mapping.errors import MappingError
from mapping.map import Mapping, map_graph

__all__ = [
    "Bound",
    "Mapping",
    "MappingError",
    "bound",
    "default_schedule",
    "map_graph",
    "program_bound",
]
