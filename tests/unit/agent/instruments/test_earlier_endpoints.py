from joblens.agent.instruments.endpoints import ResumedEndpoints
from joblens.model.jobs.details import Details, Endpoint, EndpointTable


def endpoint(address: str, sockets: int, rx_bytes: int | None) -> Endpoint:
    return Endpoint(protocol="tcp", address=address, port=80, sockets=sockets, rx_bytes=rx_bytes)


def table(at_us: int, *endpoints: Endpoint) -> EndpointTable:
    return EndpointTable(at_us=at_us, endpoints=endpoints, seen=len(endpoints))


class Tables:
    name, interval_s = "endpoints", 1.0

    def __init__(self, *tables: EndpointTable | None) -> None:
        self._tables = list(tables)

    def read(self) -> Details:
        return Details(endpoints=self._tables.pop(0))

    def close(self) -> None:
        pass


def last_of(earlier: EndpointTable, *tables: EndpointTable | None) -> dict[str, tuple[int, int | None]]:
    probe = ResumedEndpoints(Tables(*tables), earlier)
    found = None
    for _ in tables:
        found = probe.read().endpoints
    assert found is not None
    return {each.address: (each.sockets, each.rx_bytes) for each in found.endpoints}


def test_whom_it_left_before_is_not_forgotten() -> None:
    found = last_of(table(1, endpoint("a", 2, 500)), table(2), table(3, endpoint("b", 1, 700)))
    assert found == {"a": (2, 500), "b": (1, 700)}


def test_a_connection_that_is_still_open_is_counted_once() -> None:
    earlier = table(1, endpoint("a", 1, 500))
    assert last_of(earlier, table(2, endpoint("a", 1, 600))) == {"a": (1, 600)}
    assert last_of(earlier, table(2, endpoint("a", 1, 600)), table(3, endpoint("a", 1, 900))) == {
        "a": (1, 900)
    }


def test_a_new_connection_to_an_endpoint_of_before_is_added() -> None:
    found = last_of(table(1, endpoint("a", 3, 500)), table(2), table(3, endpoint("a", 1, 100)))
    assert found == {"a": (4, 600)}


def test_nothing_goes_back_where_some_are_still_open() -> None:
    earlier = table(1, endpoint("a", 3, 500))  # one of them, with 100 bytes, is still open
    first, later = table(2, endpoint("a", 1, 100)), table(3, endpoint("a", 2, 180))
    assert last_of(earlier, first) == {"a": (3, 500)}
    assert last_of(earlier, first, later) == {"a": (4, 580)}


def test_what_is_not_reported_is_not_made_up() -> None:
    assert last_of(table(1, endpoint("a", 1, None)), table(2, endpoint("a", 1, None))) == {"a": (1, None)}


def test_how_many_there_were_and_the_busiest_first() -> None:
    earlier = table(1, endpoint("a", 1, 10), endpoint("b", 1, 90))
    probe = ResumedEndpoints(Tables(table(2, endpoint("b", 1, 90), endpoint("c", 1, 50))), earlier)
    found = probe.read().endpoints
    assert found is not None
    assert ([each.address for each in found.endpoints], found.seen) == (["b", "c", "a"], 3)


def test_no_news_stay_no_news() -> None:
    assert ResumedEndpoints(Tables(None), table(1)).read() == Details()
