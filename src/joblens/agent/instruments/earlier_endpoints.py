"""Endpoints of a job that another process looked at before: what that one had seen is not forgotten."""

from collections.abc import Sequence

from msgspec.structs import replace

from joblens.agent.instruments.details import look_again, read_last
from joblens.model.jobs.details import Details, Endpoint, EndpointTable
from joblens.ports.probe import DetailProbe

_Key = tuple[str, str, int, bool]
_MOST_SHOWN = 50
_COUNTED = ("sockets", "gone", "rx_bytes", "tx_bytes", "retransmits")


class EndpointsGoOn:
    """Gives what `probe` gives, with what was in the table of the one before.

    A connection that is open at the first look was counted by both of us, from its beginning: it is counted
    once. What it carried while nobody looked may be missing where it shares an endpoint with others."""

    def __init__(self, probe: DetailProbe, earlier: EndpointTable) -> None:
        self.name = probe.name
        self._probe = probe
        self._earlier = earlier
        self._first: dict[_Key, Endpoint] | None = None

    @property
    def interval_s(self) -> float:
        return self._probe.interval_s

    def read(self) -> Details:
        return self._with_earlier(self._probe.read())

    def look_again(self) -> None:
        look_again(self._probe)

    def read_last(self) -> Details:
        return self._with_earlier(read_last(self._probe))

    def _with_earlier(self, details: Details) -> Details:
        table = details.endpoints
        return details if table is None else replace(details, endpoints=self._together(table))

    def close(self) -> None:
        self._probe.close()

    def _together(self, table: EndpointTable) -> EndpointTable:
        now = {_key(each): each for each in table.endpoints}
        if self._first is None:
            self._first = now
        before = {_key(each): each for each in self._earlier.endpoints}
        added = [_added(before.get(key), self._first.get(key), each) for key, each in now.items()]
        kept = [each for key, each in before.items() if key not in now]
        new_ones = table.seen - len(now.keys() & before.keys())
        return replace(
            table,
            endpoints=tuple(_busiest([*added, *kept])[:_MOST_SHOWN]),
            seen=max(table.seen, self._earlier.seen + new_ones),
            open_at_us=table.open_at_us or self._earlier.open_at_us,
        )


def _added(before: Endpoint | None, first: Endpoint | None, now: Endpoint) -> Endpoint:
    if before is None:
        return now
    return replace(now, **{name: _count(name, before, first, now) for name in _COUNTED})


def _count(name: str, before: Endpoint, first: Endpoint | None, now: Endpoint) -> int | None:
    known: int | None = getattr(before, name)
    value: int | None = getattr(now, name)
    if known is None or value is None:
        return value if known is None else known
    at_first: int = (getattr(first, name) or 0) if first is not None else 0
    return max(value, known + value - at_first)


def _key(endpoint: Endpoint) -> _Key:
    return endpoint.protocol, endpoint.address, endpoint.port, endpoint.is_listener


def _busiest(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    return sorted(
        endpoints,
        key=lambda each: (-((each.rx_bytes or 0) + (each.tx_bytes or 0)), -each.sockets, _key(each)),
    )
