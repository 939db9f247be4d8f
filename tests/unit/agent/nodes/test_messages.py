from joblens.agent.nodes.protocol import NodeReport, ReportReader, report_lines
from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import Usage


def a_report(node: str, text: str = "") -> NodeReport:
    usage = Usage(cpu_total_usec=5, sources={"cpu": text})
    return NodeReport(part=NodePart(node=node, usage=usage, tasks=(0, 3)), is_final=True)


def test_a_long_report_goes_in_lines_that_no_cluster_breaks_up() -> None:
    lines = report_lines(a_report("n1", "é" * 3000))
    assert len(lines) > 5
    assert max(len(line) for line in lines) < 1024
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


def test_reports_of_several_nodes_may_be_mixed() -> None:
    first, second = a_report("n1", "a" * 2000), a_report("n2", "b" * 2000)
    reader = ReportReader()
    mixed = [line for pair in zip(report_lines(first), report_lines(second), strict=True) for line in pair]
    assert [report for line in mixed if (report := reader.feed(line))] == [first, second]


def test_what_is_no_report_is_kept_as_what_was_said() -> None:
    reader = ReportReader()
    assert reader.feed(b"srun: error: n2: task 0: Killed\n") is None
    assert reader.messages == ["srun: error: n2: task 0: Killed"]


def test_a_report_whose_beginning_is_lost_is_dropped_and_the_next_one_read() -> None:
    report = a_report("n1", "a" * 2000)
    reader = ReportReader()
    for line in [*report_lines(report)[1:], b"joblens-node n1 x/y {}\n", b"joblens-node n1 1/1 {\n"]:
        assert reader.feed(line) is None
    assert [found for line in report_lines(report) if (found := reader.feed(line))] == [report]
