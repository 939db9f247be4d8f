"""Where a job ran, from its record."""

from msgspec.structs import replace

from joblens.analysis.formats.history import WhereItRan, where_it_ran
from joblens.analysis.runs.table import ResultRow, row_form
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Placement, Record, Status
from joblens.model.runs.run import JobState
from joblens.views.runs.results import render_results
from joblens.views.text.style import Palette

HERE = Owner(host="n1", pid=1, start_ticks=1, boot_id="b")


def record(queue: str = "", placement: Placement | None = None, worker: str = "") -> Record:
    return Record(
        status=Status.SUCCESS,
        job=Job(uuid="u", argv=("true",), created_at_us=1, queue=queue),
        attempt=Attempt(started_at_us=1, owner=HERE, placement=placement),
        outcome=Outcome(status=Status.SUCCESS, ended_at_us=2, duration_s=1.0, worker=worker),
    )


def test_a_job_of_this_machine_has_its_host_alone() -> None:
    where = where_it_ran(record())
    assert where == WhereItRan(engine="local", host="n1")
    assert where.describe() == ""


def test_a_job_of_slurm_has_its_id_and_nodes() -> None:
    placed = Placement(engine="slurm", job_id="12_3", nodes=("n1", "n2"))
    where = where_it_ran(record("@slurm.run~", placed, "w"))
    assert (where.engine, where.cluster_job_id, where.nodes) == ("slurm", "12_3", ("n1", "n2"))
    assert where.describe() == "n1,n2 (slurm 12_3)"


def test_a_job_of_ray_has_its_node() -> None:
    placed = Placement(engine="ray", node_id="0123456789abcdef")
    assert where_it_ran(record("@ray.run", placed)).describe() == "n1 (ray 01234567)"


def test_a_job_of_a_queue_has_its_worker() -> None:
    where = where_it_ran(record("default", worker="w-1"))
    assert (where.engine, where.worker) == ("celery", "w-1")
    assert where.describe() == "n1 (w-1)"


def test_a_job_that_waits_at_a_cluster_is_of_that_engine() -> None:
    waits = replace(record("@slurm.run"), attempt=None, outcome=None)
    assert where_it_ran(waits) == WhereItRan(engine="slurm")


def test_the_table_has_the_column_only_where_it_says_something() -> None:
    here = ResultRow(index=0, name="a", state=JobState.COMPLETED)
    there = replace(here, where=WhereItRan(engine="slurm", host="n1", cluster_job_id="7"))
    paint = Palette(is_on=False)
    heads = [render_results([row], width=None, paint=paint)[0] for row in (here, there)]
    assert ["Where" in head for head in heads] == [False, True]
    line = render_results([there], width=None, paint=paint)[1]
    assert "n1 (slurm 7)" in line


def test_the_form_always_says_it() -> None:
    form = row_form(ResultRow(index=0, name="a", state=JobState.COMPLETED))
    assert (form["engine"], form["host"], form["cluster_job_id"]) == ("local", None, None)
