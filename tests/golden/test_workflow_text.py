"""What workflow commands show, pinned: compared with the files of their names in this folder."""

from joblens.app.workflows.loader import expanded_workflow, load_spec
from joblens.app.workflows.validation import check_spec
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.runs.run import JobState
from joblens.views.graph.svg import render_svg
from joblens.views.graph.text import Drawing, Grouping, drawing_of, render_graph, render_mermaid
from joblens.views.runs.plan import render_check
from joblens.views.text.yaml_text import yaml_lines
from tests.conftest import REPOSITORY
from tests.golden.golden import same_as_golden, same_text

RAIN = str(REPOSITORY / "tests" / "fixtures" / "specs" / "rain.yaml")
SMALL_OFFER = RunCapacity(cpus=1.0, memory_bytes=256 << 20)


def rain(*, in_a_run: bool = False, months: str = "1:12", grouping: Grouping = Grouping.ENTRY) -> Drawing:
    loaded = load_spec(RAIN, {"month": months})
    states = None
    if in_a_run:
        states = dict.fromkeys(range(len(loaded.plan.jobs)), JobState.BLOCKED)
        states |= {0: JobState.COMPLETED, 1: JobState.COMPLETED, 2: JobState.FAILED, 3: JobState.RUNNING}
    entries = [job.name for job in loaded.spec.jobs]
    return drawing_of(loaded.plan, entries, grouping, states)


def test_graph() -> None:
    same_as_golden("graph", render_graph(rain(), width=80))


def test_graph_of_a_run() -> None:
    same_as_golden("graph-run", render_graph(rain(in_a_run=True), width=100))


def test_graph_as_mermaid() -> None:
    same_text("graph.mmd", "\n".join([*render_mermaid(rain(in_a_run=True)), ""]))


def test_graph_as_svg() -> None:
    drawing = rain(in_a_run=True, months="10:11", grouping=Grouping.JOB)
    same_text("graph.svg", render_svg(drawing))


def test_graph_with_sweeps_as_svg() -> None:
    same_text("graph-sweeps.svg", render_svg(rain(in_a_run=True)))


def test_validate() -> None:
    check = check_spec(load_spec(RAIN), SMALL_OFFER)
    lines = render_check("rain.yaml", check.jobs, check.stages, check.largest, check.warnings)
    same_as_golden("validate", lines)


def test_expand() -> None:
    values = {"month": "9:10", "model": "[gfs]"}
    document = expanded_workflow(load_spec(RAIN, values), values)
    same_text("expand.yaml", "\n".join([*yaml_lines(document), ""]))
