from typing import Any

from joblens.model.jobs.details import Endpoint
from joblens.probes.network.endpoints import EndpointTally
from joblens.probes.network.socket_dump import SocketSeen, filter_for

HERE, THERE = "10.0.0.1", "10.0.0.2"


def connection(cookie: int = 1, rx: int = 0, tx: int = 0, **changes: Any) -> SocketSeen:
    fields: dict[str, Any] = {
        "group": 5,
        "cookie": cookie,
        "protocol": "tcp",
        "local": HERE,
        "local_port": 40000 + cookie,
        "remote": THERE,
        "remote_port": 443,
        "is_listening": False,
        "rx_bytes": rx,
        "tx_bytes": tx,
        "retransmits": 0,
        "rtt_usec": 100,
    }
    return SocketSeen(**{**fields, **changes})


def listener(port: int, protocol: str = "tcp", cookie: int = 99) -> SocketSeen:
    is_tcp = protocol == "tcp"
    return SocketSeen(5, cookie, protocol, "0.0.0.0", port, "0.0.0.0", 0, is_tcp)


def tally(*looks: list[SocketSeen]) -> tuple[Endpoint, ...]:
    found = EndpointTally()
    for look in looks:
        found.add((0, seen) for seen in look)
    return found.table(1).endpoints


def test_a_connection_that_grows_counts_once() -> None:
    (one,) = tally([connection(rx=10, tx=5)], [connection(rx=30, tx=6)], [connection(rx=30, tx=9)])
    assert (one.address, one.port, one.sockets, one.rx_bytes, one.tx_bytes) == (THERE, 443, 1, 30, 9)


def test_of_a_connection_that_was_there_before_only_the_difference_counts() -> None:
    found = EndpointTally(has_begun=True)
    found.add([(0, connection(1, rx=5_000_000, tx=7))])
    (one,) = found.table(1).endpoints
    assert (one.sockets, one.rx_bytes, one.tx_bytes) == (1, 0, 0)
    found.add([(0, connection(1, rx=5_000_100, tx=7)), (0, connection(2, rx=30))])
    (one,) = found.table(2).endpoints
    assert (one.sockets, one.rx_bytes, one.tx_bytes) == (2, 130, 0)


def test_connections_to_one_peer_add_up_also_when_some_are_closed() -> None:
    (one,) = tally(
        [connection(1, rx=10), connection(2, rx=20)], [connection(2, rx=25), connection(3, rx=1)], []
    )
    assert (one.sockets, one.rx_bytes) == (3, 36)


def test_sockets_that_are_gone_are_counted_and_when_the_last_was_open() -> None:
    found = EndpointTally()
    found.add([(0, connection(1, rx=10)), (0, connection(2, rx=20)), (0, listener(53, "udp"))])
    assert (found.table(100).open_at_us, [one.gone for one in found.table(100).endpoints]) == (100, [0, 0])
    found.add([(0, connection(2, rx=25))])
    table = found.table(200)
    assert (table.open_at_us, [one.gone for one in table.endpoints]) == (200, [1, 0])  # UDP has no bytes
    found.add([(0, listener(8080))])
    assert (found.table(300).open_at_us, found.table(300).endpoints[0].gone) == (200, 2)


def test_sockets_of_two_namespaces_may_have_one_number() -> None:
    found = EndpointTally()
    found.add([(0, connection(1, rx=10)), (7, connection(1, rx=20))])
    assert found.table(1).endpoints[0].rx_bytes == 30


def test_clients_of_a_server_are_reported_by_the_port_they_came_to() -> None:
    served = [connection(n, rx=n, local_port=8080, remote_port=50000 + n) for n in (1, 2)]
    endpoints = tally([listener(8080), *served])
    assert [(one.address, one.port, one.is_listener, one.sockets) for one in endpoints] == [
        (THERE, 8080, True, 2),
        ("0.0.0.0", 8080, True, 0),
    ]


def test_the_busiest_come_first_and_a_kind_without_counters_has_none() -> None:
    endpoints = tally([listener(53, "udp"), connection(1, rx=1), connection(2, tx=9, remote="10.0.0.3")])
    assert [one.address for one in endpoints] == ["10.0.0.3", THERE, "0.0.0.0"]
    assert (endpoints[-1].rx_bytes, endpoints[-1].tx_bytes, endpoints[-1].sockets) == (None, None, 1)


def test_a_socket_that_is_connected_later_is_reported_by_its_peer_from_then_on() -> None:
    unconnected = SocketSeen(5, 1, "udp", HERE, 40001, "0.0.0.0", 0, False)
    connected = SocketSeen(5, 1, "udp", HERE, 40001, THERE, 53, False)
    assert {(one.address, one.port) for one in tally([unconnected], [connected])} == {
        (HERE, 40001),
        (THERE, 53),
    }


def test_a_job_with_very_many_peers_keeps_the_busiest() -> None:
    found = EndpointTally()
    for number in range(20_000):
        remote = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        found.add([(0, connection(number, rx=10**6 if number == 7 else 1, remote=remote))])
    table = found.table(1)
    assert (table.seen, len(table.endpoints)) == (20_000, 50)
    assert table.endpoints[0].address == "10.0.0.7"
    assert len(found._totals) <= 4096


def run_filter(code: bytes, group: int) -> bool:
    """The way the kernel does it."""
    place = 0
    while place < len(code):
        kind, yes, otherwise = (
            code[place],
            code[place + 1],
            int.from_bytes(code[place + 2 : place + 4], "little"),
        )
        holds = kind == 13 and int.from_bytes(code[place + 4 : place + 12], "little") == group
        place += yes if holds else otherwise
    return place == len(code)


def test_a_filter_lets_the_sockets_of_all_its_groups_pass_and_no_others() -> None:
    for count in (1, 2, 3, 1000):
        groups = [10 * number + 1 for number in range(count)]
        code = filter_for(groups)
        assert all(run_filter(code, group) for group in (groups[0], groups[count // 2], groups[-1]))
        assert not any(run_filter(code, group) for group in (0, 2, 10 * count + 1))
