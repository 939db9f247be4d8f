from joblens.model.jobs.details import NodePart, NodeTable
from joblens.model.jobs.job import Usage
from joblens.views.jobs.resources import node_lines
from joblens.views.text.style import Palette

MIB = 1 << 20


def test_each_node_has_a_row_and_what_is_wrong_is_reported_below() -> None:
    usage = Usage(cpu_total_usec=1_500_000, memory_peak_bytes=80 * MIB, lower_bounds=("cpu_total_usec",))
    table = NodeTable(
        at_us=1,
        nodes=(
            NodePart(node="n1", usage=usage, tasks=(0, 1, 2, 5), processes=4, is_first=True),
            NodePart(node="n2", error="no joblens agent started there"),
        ),
    )
    head, first, second, why = node_lines(table, 100, Palette(is_on=False))
    assert head.split() == ["NODE", "RANKS", "TASKS", "CPU", "TIME", "MEMORY", "PEAK", "READ", "WRITTEN"]
    assert first.split()[:6] == ["n1", "0-2,5", "4", "≥1.5s", "80.0", "MiB"]
    assert second.split()[0] == "n2"
    assert "≥" not in second
    assert why == "  n2: no joblens agent started there"
