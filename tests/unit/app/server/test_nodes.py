"""Machines as the Nodes page joins them."""

from msgspec.structs import replace

from joblens.app.server.live import Machine
from joblens.app.server.nodes import HostJobs, nodes_of
from tests.builders.tickets import worker

NOW_US = 1_000_000_000


def test_a_machine_is_one_row_whatever_knows_of_it() -> None:
    live = [
        Machine(host="here", cpu_percent=10.0, memory_total_bytes=8, cpu_count=4),
        Machine(host="far", jobs=2, memory_used_bytes=1),
    ]
    announced = replace(worker("w1", cpus=16.0, memory_bytes=64, gpus=2), host="far", seen_at_us=NOW_US - 5)
    found = nodes_of(live, [announced], {"old": HostJobs(3, 77)}, NOW_US, 60.0)
    assert [(each.host, each.is_server) for each in found] == [("here", True), ("far", False), ("old", False)]
    here, far, old = found
    assert (here.cpu_count, here.gpus, here.workers) == (4, None, ())
    assert (far.jobs, far.cpu_count, far.memory_total_bytes, far.gpus) == (2, 16.0, 64, 2)
    assert (old.jobs_of_week, old.seen_at_us, old.cpu_percent) == (3, 77, None)


def test_a_worker_without_a_heartbeat_is_silent() -> None:
    seen = [
        replace(worker(name), seen_at_us=at) for name, at in (("old", NOW_US - 61_000_000), ("new", NOW_US))
    ]
    (node,) = nodes_of([], seen, {}, NOW_US, 60.0)
    assert {each.name: each.is_silent for each in node.workers} == {"old": True, "new": False}
    assert node.seen_at_us == NOW_US
