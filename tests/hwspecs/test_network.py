"""The network part of a machine."""

import pytest
from pydantic import ValidationError

import hwspecs
from hwspecs.network import Network, Packets

PACKETS = {
    "flit": "16 B",
    "header": "4 B",
    "virtual_channels": 2,
    "buffer": "4 flits",
    "router": "1 cycle",
    "link": "1 cycle",
}


@pytest.mark.parametrize(
    ("payload", "flits"),
    [(0, 1), (12, 1), (13, 2), (28, 2), (29, 3)],  # 4 B of header, then 16 B a flit
)
def test_packet_has_its_header_in_its_first_flit(payload, flits):
    assert Packets.model_validate(PACKETS).flits(payload) == flits


def test_packet_header_is_no_longer_than_a_flit():
    with pytest.raises(ValidationError, match="at most a flit, 16 B"):
        Packets.model_validate({**PACKETS, "header": "17 B"})


@pytest.mark.parametrize("kind", ["ideal", "static"])
def test_network_without_packets_refuses_them(kind):
    with pytest.raises(ValidationError, match="left out"):
        Network.model_validate(
            {"kind": kind, "channel": "1 cycle", "credit": "1 cycle", "packets": PACKETS}
        )


def test_dynamic_network_needs_packets():
    with pytest.raises(ValidationError, match="given for a dynamic network"):
        Network.model_validate({"kind": "dynamic", "channel": "1 cycle", "credit": "1 cycle"})


def test_dynamic_study_differs_from_plasticine_in_network_and_fifos_only():
    static, dynamic = hwspecs.load("plasticine"), hwspecs.load("plasticine_dynamic")
    same = {"network": static.network, "name": static.name, "summary": static.summary}
    depths = {
        part: getattr(dynamic, part).model_copy(
            update={"fifo_depth_beats": getattr(static, part).fifo_depth_beats}
        )
        for part in ("compute", "memory")
    }
    assert dynamic.model_copy(update={**same, **depths}) == static
