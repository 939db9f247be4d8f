"""The program that counts packets is written down as it is put together."""

import struct

import pytest

from joblens.probes.network import cgroup_network, traffic_program
from joblens.probes.network.cgroup_network import EGRESS, INGRESS


@pytest.mark.parametrize("direction", [INGRESS, EGRESS])
@pytest.mark.parametrize("counters", [0, 7, 0x01020304])
def test_what_is_loaded_is_what_its_source_says(counters: int, direction: int) -> None:
    assert cgroup_network.program(counters, direction) == traffic_program.program(counters, direction)


def test_each_counter_is_read_where_it_is_counted() -> None:
    received, sent = struct.pack("=5Q24x", 1, 2, 3, 4, 5), struct.pack("=5Q24x", 6, 7, 8, 9, 10)
    starts = cgroup_network.STARTS
    value = received + sent if starts[INGRESS] < starts[EGRESS] else sent + received
    assert len(value) == cgroup_network.VALUE_BYTES
    assert list(cgroup_network.parse_counters(value).values()) == list(range(1, 11))
