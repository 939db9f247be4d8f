from joblens.agent.nodes.job import merge_usage, with_lower_bounds
from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import Usage

MIB = 1 << 20
FIRST = Usage(
    cpu_total_usec=100,
    memory_peak_bytes=10 * MIB,
    processes_peak=3,
    context_switches_voluntary=7,
    sources={"cpu": "cpu.stat", "memory_peak": "memory.peak"},
    unknown={"network_rx_bytes": "no BPF here"},
)


def part(node: str, usage: Usage, *, processes: int = 1, error: str = "") -> NodePart:
    return NodePart(node=node, usage=usage, processes=processes, error=error)


def test_work_adds_up_and_memory_is_that_of_the_largest_node() -> None:
    other = Usage(cpu_total_usec=50, memory_peak_bytes=30 * MIB, processes_peak=2, network_rx_bytes=9)
    merged = merge_usage(FIRST, [part("n2", other)])
    assert (merged.cpu_total_usec, merged.memory_peak_bytes, merged.processes_peak) == (150, 30 * MIB, 5)
    assert merged.sources["cpu"] == "cpu.stat; 2 nodes"
    assert merged.sources["memory_peak"] == "memory.peak; of the node that needed the most, n2, of 2"


def test_what_one_node_could_not_tell_is_a_lower_bound() -> None:
    other = Usage(cpu_total_usec=50, memory_peak_bytes=MIB, processes_peak=1, network_rx_bytes=9)
    merged = merge_usage(FIRST, [part("n2", other)])
    assert merged.lower_bounds == ("context_switches_voluntary", "network_rx_bytes")
    assert merged.network_rx_bytes == 9
    assert "network_rx_bytes" not in merged.unknown
    assert "the first node" in merged.sources["memory_peak"]


def test_a_lower_bound_of_any_node_is_one_of_all() -> None:
    other = Usage(
        cpu_total_usec=50,
        memory_peak_bytes=MIB,
        processes_peak=1,
        context_switches_voluntary=1,
        lower_bounds=("cpu_total_usec",),
    )
    assert merge_usage(FIRST, [part("n2", other)]).lower_bounds == ("cpu_total_usec",)


def test_a_node_where_nothing_ran_takes_nothing_away() -> None:
    merged = merge_usage(FIRST, [part("n2", Usage(cpu_total_usec=0), processes=0)])
    assert merged.cpu_total_usec == 100
    assert merged.lower_bounds == ()


def test_a_node_that_nobody_knows_anything_of_makes_every_number_a_lower_bound() -> None:
    merged = merge_usage(FIRST, [part("n2", Usage(), processes=0, error="its agent was killed")])
    assert merged.cpu_total_usec == 100
    assert {"cpu_total_usec", "memory_peak_bytes", "processes_peak"} <= set(merged.lower_bounds)


def test_where_a_cluster_waited_for_tasks_their_calls_are_not_known_to_the_end() -> None:
    usage = Usage(cpu_total_usec=1, io_read_bytes=5, io_call_reads=2)
    assert with_lower_bounds(usage).lower_bounds == ("io_read_bytes", "io_call_reads")
    counted_by_group = Usage(cpu_total_usec=1, io_read_bytes=5, io_read_ops=1, io_call_reads=2)
    assert with_lower_bounds(counted_by_group).lower_bounds == ("io_call_reads",)
