"""The program that counts packets, as the kernel takes it, and the layout of what it counts.

Put together by `traffic_program`, which says what it does; a test proves that both are the same."""

import mmap
import struct

from joblens.probes.network.bpf import EGRESS, INGRESS

VALUE_BYTES = 128
FIELDS = (
    "network_rx_bytes",
    "network_rx_packets",
    "network_tcp_rx_bytes",
    "network_udp_rx_bytes",
    "network_ipv6_rx_bytes",
    "network_tx_bytes",
    "network_tx_packets",
    "network_tcp_tx_bytes",
    "network_udp_tx_bytes",
    "network_ipv6_tx_bytes",
)
STARTS = {INGRESS: 0, EGRESS: 64}  # of the counters of a direction
_LAYOUT = struct.Struct("=5Q24x5Q24x")  # in the order of FIELDS
_MAP_PLACE, _START_PLACE = 532, 540  # in the code: descriptor of the map, and where its counters begin
_NUMBER = struct.Struct("=i")
_CODE = bytes.fromhex(
    "bf16000000000000b7010000000000007b1ae8ff000000007961a800000000001501040000000000850000005f000000"
    "150002000000000061010c00000000007b1ae8ff0000000061670000000000006169a400000000002509020001000000"
    "b7090000010000000500340000000000616110000000000015010d0086dd0000b702000000000000bf61000000000000"
    "bfa300000000000007030000f8ffffffb704000001000000850000001a00000055002b000000000071a1f8ff00000000"
    "570100000f0000006701000002000000bf120000000000007b2af0ff000000000500110000000000b702000006000000"
    "bf61000000000000bfa300000000000007030000f8ffffffb704000001000000850000001a00000055001e0000000000"
    "71a1f8ff00000000b7020000280000007b2af0ff00000000150106000600000015010500110000005501180000000000"
    "25070100ffff000005001600000000001707000008000000070200000800000079a3e8ff00000000b701000008000000"
    "15030b00110000005503100006000000070200000c000000bf61000000000000bfa300000000000007030000f8ffffff"
    "b704000001000000850000001a000000550009000000000071a1f8ff0000000077010000040000006701000002000000"
    "79a2f0ff000000000f21000000000000bf9200000000000017020000010000002f210000000000000f17000000000000"
    "18280000000000000000000000000000db78000000000000db9808000000000061611000000000005501010086dd0000"
    "db7820000000000079a1e8ff000000005501010006000000db781000000000005501010011000000db78180000000000"
    "b7000000010000009500000000000000"
)


def program(counters: int, direction: int) -> bytes:
    """`counters`: descriptor of the map."""
    code = bytearray(_CODE)
    _NUMBER.pack_into(code, _MAP_PLACE, counters)
    _NUMBER.pack_into(code, _START_PLACE, STARTS[direction])
    return bytes(code)


def parse_counters(data: bytes | mmap.mmap) -> dict[str, int]:
    return dict(zip(FIELDS, _LAYOUT.unpack_from(data), strict=True))
