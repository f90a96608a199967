"""The network of a machine: a wire a channel, links reserved for channels, or links that all share.

Links are those between neighbouring switches of a mesh, one switch a grid cell.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from hwspecs.errors import RuleError
from hwspecs.spec import Bytes, Count, Cycles, Flits, Spec


class Packets(Spec):
    """How a dynamic network moves beats: as packets of flits, a flit a link and cycle."""

    flit_bytes: Bytes
    """What a link moves in a cycle."""
    header_bytes: Bytes
    """Bytes of a packet, besides its beat, that say where it goes: its first."""
    virtual_channels: Count
    """Buffers at the far end of a link; a packet holds one of a link at a time."""
    buffer_flits: Flits
    """Flits that each of them holds."""
    router_cycles: Cycles
    """From a flit's arrival at a router to the first cycle in which it may leave."""
    link_cycles: Cycles
    """From leaving a router to the arrival at the next; credits take as long on their way back."""

    @field_validator("header_bytes", mode="after")
    @classmethod
    def _check_header(cls, header: int, info: ValidationInfo) -> int:
        flit = info.data.get("flit_bytes")
        if flit is not None and header > flit:
            raise RuleError(f"at most a flit, {flit} B")
        return header

    def flits(self, payload_bytes: int) -> int:
        """Flits of a packet with `payload_bytes` besides its header."""
        return -(-(self.header_bytes + payload_bytes) // self.flit_bytes)


class Network(Spec):
    """How beats travel between units."""

    kind: Literal["ideal", "static", "dynamic"]
    """ideal: a wire for every channel. static: routes over links, one channel a link. dynamic:
    packets over links that all channels share."""
    topology: Literal["mesh"] = "mesh"
    channel_cycles: Cycles
    """Latency of a channel before any hop."""
    credit_cycles: Cycles
    """From a pop to the free slot seen by the writer."""
    hop_cycles: Cycles = 1
    """A hop of a static network, or from cell to cell of a unit that is a chain of several."""
    vector_links: Count = 1
    """Vector links a direction between neighbouring switches; a static network's alone."""
    scalar_links: Count = 1
    packets: Packets | None = Field(default=None, validate_default=True)
    """How a dynamic network moves beats; left out for the others."""

    @field_validator("packets", mode="after")
    @classmethod
    def _check_packets(cls, packets: Packets | None, info: ValidationInfo) -> Packets | None:
        kind = info.data.get("kind")
        if kind == "dynamic" and packets is None:
            raise RuleError("given for a dynamic network")
        if kind in ("ideal", "static") and packets is not None:
            raise RuleError("left out", f"the network is {kind}")
        return packets
