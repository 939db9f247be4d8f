"""`joblens plot` as a real process, on a store and on files as Torc writes them."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from joblens.app.reports.plots import MOST_JOB_PLOTS, plot_run, write_run_time_series
from joblens.model.jobs.job import Job, Outcome, Status
from joblens.model.runs.run import Run
from joblens.model.runs.workflow_spec import MonitorSpec
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_jobs
from tests.builders.records import START_US
from tests.builders.writes import whole_job
from tests.conftest import RunJoblens, python_path
from tests.integration.plot_material import documented_torc_file, fan_plan, fill_run, torc_file

pytestmark = pytest.mark.needs("plotly", "matplotlib")


@pytest.fixture
def run(store_path: Path) -> Run:
    """Run 1.1, of twelve jobs of which two were tried twice: jobs 1 to 14."""
    store = SqliteStore(str(store_path))
    made = fill_run(store, fan_plan(5))
    store.close()
    return made


def keep_jobs(store_path: Path, jobs: list[tuple[str, int, int]]) -> None:
    """Of each: its name, when it started, and how many samples it has, one a second."""
    store = SqliteStore(str(store_path))
    for number, (name, start_s, count) in enumerate(jobs):
        uuid = f"{number:08d}-0000-4000-8000-000000000000"
        start_us = START_US + start_s * 1_000_000
        job = Job(uuid=uuid, argv=("work",), created_at_us=start_us, name=name)
        ended_us = start_us + (count - 1) * 1_000_000
        outcome = Outcome(
            status=Status.SUCCESS, ended_at_us=ended_us, duration_s=count - 1.0, exit_code=0, samples=count
        )
        taken = SamplesTaken(uuid, 0, past_jobs.samples(count, start_us=start_us))
        started = JobStarted(uuid, past_jobs.attempt(start_us=start_us))
        store.apply([JobQueued(job), started, taken, JobEnded(uuid, outcome)])
    store.close()


def figure_in(page: Path) -> Any:
    text = page.read_text()
    assert "plotly.js v" in text  # the script is inside
    return json.loads(re.findall(r"const figure = (.*);\n", text)[0])


def test_a_run_gives_the_four_kinds_of_pages_and_a_gantt_chart(
    joblens: RunJoblens, run: Run, tmp_path: Path
) -> None:
    done = joblens("plot", "1.1", "--json", code=0)
    names = {Path(path).name for path in done.json["files"]}
    assert names == {
        *(f"resource_plot_job_{number}.html" for number in range(1, 15)),
        "resource_plot_cpu_all_jobs.html",
        "resource_plot_memory_all_jobs.html",
        "resource_plot_summary.html",
        "resource_plot_gantt.html",
    }
    assert all((tmp_path / path).is_file() for path in done.json["files"])
    figure = figure_in(tmp_path / "plots" / "resource_plot_job_2.html")
    assert [trace["name"] for trace in figure["data"][:3]] == ["CPU", "Memory", "Processes"]
    assert len({trace["yaxis"] for trace in figure["data"]}) == 3
    gantt = figure_in(tmp_path / "plots" / "resource_plot_gantt.html")
    bars = [trace for trace in gantt["data"] if trace["type"] == "bar"]
    assert {trace["name"]: len(trace["x"]) for trace in bars} == {"completed": 12, "failed": 2}


def test_pictures_of_chosen_jobs_under_another_name(joblens: RunJoblens, run: Run, tmp_path: Path) -> None:
    done = joblens(
        "plot",
        "sweep",
        "-o",
        "deep/er",
        "--job-ids",
        "2,4",
        "--prefix",
        "mine",
        "--format",
        "svg,png",
        code=0,
    )
    names = {Path(line).name for line in done.stdout.splitlines()}
    stems = ("job_2", "job_4", "cpu_all_jobs", "memory_all_jobs", "summary", "gantt")
    assert names == {f"mine_{stem}.{form}" for stem in stems for form in ("svg", "png")}
    assert "12 plots of 2 attempts in deep/er" in done.stderr
    assert "warning" not in done.stderr.lower()
    assert "train_000" in (tmp_path / "deep/er/mine_summary.svg").read_text()
    assert (tmp_path / "deep/er/mine_gantt.png").read_bytes().startswith(b"\x89PNG")


def test_one_job_by_its_id(joblens: RunJoblens, store_path: Path, tmp_path: Path) -> None:
    past_jobs.fill(store_path, tmp_path / "logs")
    done = joblens("plot", past_jobs.POISSON[:4] + past_jobs.POISSON[4:8], code=0)
    assert re.fullmatch(r"plots/resource_plot_job_\d+\.html\n", done.stdout)


def test_jobs_of_different_times_begin_at_their_own_start_and_those_of_one_time_share_it(
    joblens: RunJoblens, store_path: Path, tmp_path: Path
) -> None:
    keep_jobs(store_path, [("first", 0, 5), ("beside", 2, 5), ("later", 600, 5)])
    joblens("plot", "job:1", "job:2", "job:3", code=0)
    traces = figure_in(tmp_path / "plots/resource_plot_memory_all_jobs.html")["data"]
    begins = {trace["name"]: trace["x"][0] for trace in traces if trace.get("visible") != "legendonly"}
    assert begins == {"1 first": 0.0, "2 beside": 2.0, "3 later": 0.0}


def test_a_job_without_a_sample_between_start_and_end_is_reported_instead_of_drawn(
    joblens: RunJoblens, store_path: Path, tmp_path: Path
) -> None:
    keep_jobs(store_path, [("tiny", 0, 2), ("whole", 0, 5), ("tiny too", 0, 2)])
    alone = joblens("plot", "job:1", code=2)
    assert "job 1 tiny is too short to plot: no sample was taken" in alone.stderr
    assert not (tmp_path / "plots").exists()
    together = joblens("plot", "job:1", "job:2", "--json", code=0).json
    assert {Path(path).name for path in together["files"]} == {
        f"resource_plot_{stem}.html" for stem in ("job_2", "cpu_all_jobs", "memory_all_jobs", "summary")
    }
    assert together["notes"] == ["too short to plot, no sample was taken: 1 of 2 jobs"]
    compared = joblens("plot", "job:1", "job:3", "--json", code=0).json["files"]
    assert [Path(path).name for path in compared] == ["resource_plot_summary.html"]


def test_files_of_torc_one_with_the_machine_s_numbers_are_laid_over_each_other(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    torc_file(tmp_path / "resource_metrics_a_1_1.db")
    torc_file(tmp_path / "resource_metrics_b_1_2.db", (1, 4), at_s=1_763_300_000, with_machine=False)
    done = joblens("plot", "resource_metrics_*.db", "--json", code=0)  # nobody has expanded that
    names = {Path(path).name for path in done.json["files"]}
    assert "resource_plot_job_1_resource_metrics_a_1_1.html" in names
    assert {"resource_plot_job_2.html", "resource_plot_job_4.html"} < names
    assert not any("gantt" in name for name in names)
    traces = figure_in(tmp_path / "plots/resource_plot_memory_all_jobs.html")["data"]
    by_name = {trace["name"]: trace for trace in traces}
    assert by_name["1 work_1 (a_1_1)"]["x"][0] == by_name["1 work_1 (b_1_2)"]["x"][0] == 0
    assert by_name["1 work_1 (a_1_1)"]["y"][0] == 64.0
    assert by_name["whole machine (a_1_1)"]["visible"] == "legendonly"
    assert sum(name.startswith("whole machine") for name in by_name) == 1


def test_a_file_with_fractions_of_seconds_and_no_names_is_drawn(joblens: RunJoblens, tmp_path: Path) -> None:
    documented_torc_file(tmp_path / "metrics.db")
    joblens("plot", "metrics.db", code=0)
    figure = figure_in(tmp_path / "plots/resource_plot_job_4.html")
    assert figure["layout"]["title"]["text"] == "<b>Job 4</b>"
    assert figure["data"][0]["x"] == [0, 0.5, 1.0]


def test_what_cannot_be_plotted_is_refused_and_nothing_is_written(
    joblens: RunJoblens, run: Run, store_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.db").write_text("no database at all, only text that goes on" * 30)
    connection = sqlite3.connect(tmp_path / "empty.db")
    connection.execute(
        "CREATE TABLE job_resource_samples (job_id, timestamp, cpu_percent, memory_bytes, num_processes)"
    )
    connection.close()
    torc_file(tmp_path / "good.db")
    (tmp_path / "file").write_text("")
    for words, message in (
        (["missing.db"], "missing.db: no such file"),
        (["no/*.db"], "no file matches 'no/*.db'"),
        (["text.db"], "text.db: not a readable time-series file"),
        (["empty.db"], "empty.db: no samples"),
        ([str(store_path)], "no time-series file"),
        ([str(tmp_path)], "is a directory"),
        (["nothing-like-it"], "'nothing-like-it' is not a run, workflow or job"),
        (["1"], "'1' is a workflow and a job"),
        (["good.db", "--job-ids", "2,99"], "no job 99 among the jobs to plot"),
        (["good.db", "--job-ids", "two"], "'two' is not a list of job numbers"),
        (["good.db", "--format", "gif"], "'gif' is not a format: use html, png, svg"),
        (["good.db", "--prefix", "a/b"], "prefix 'a/b'"),
        (["good.db", "-o", "file"], "file: cannot be created"),
    ):
        done = joblens("plot", *words, code=2)
        assert message in done.stderr, words
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert not (tmp_path / "plots").exists()


def test_a_number_that_is_both_can_be_distinguished(joblens: RunJoblens, run: Run) -> None:
    assert "resource_plot_job_1.html" in joblens("plot", "job:1", code=0).stdout
    assert (
        "resource_plot_gantt.svg"
        in joblens("plot", "workflow:1", "--job-ids", "1", "--format", "svg", code=0).stdout
    )


def test_without_the_extra_the_line_to_install_it_is_reported(joblens: RunJoblens, tmp_path: Path) -> None:
    torc_file(tmp_path / "good.db")
    for module, form in (("plotly", "html"), ("matplotlib", "png")):
        (tmp_path / module).mkdir()
        (tmp_path / module / f"{module}.py").write_text("raise ImportError('not installed')")
        env = {"PYTHONPATH": python_path(tmp_path / module)}
        done = joblens("plot", "good.db", "--format", form, env=env, code=2)
        assert f"need {module}, which is not installed" in done.stderr
        assert "pip install 'joblens[plots]'" in done.stderr
        assert not (tmp_path / "plots").exists()


def test_of_many_jobs_only_some_get_a_page_of_their_own(store_path: Path, tmp_path: Path) -> None:
    store = SqliteStore(str(store_path))
    plan = fan_plan(15)
    run = fill_run(store, plan)
    done = plot_run(store, run, str(tmp_path / "plots"), plan=plan)
    singles = [path for path in done.files if "_job_" in path]
    assert len(singles) == MOST_JOB_PLOTS
    failed = [result.number for result in store.run_results(run.uuid) if result.exit_code]
    assert all(any(path.endswith(f"_job_{number}.html") for path in singles) for number in failed)
    (note,) = done.notes
    assert "--all-jobs" in note
    store.close()


@pytest.mark.parametrize(
    ("monitor", "rows", "cpus", "memories"),
    [
        (MonitorSpec(), True, True, True),
        (MonitorSpec(host_enabled=False), False, False, False),
        (MonitorSpec(host_cpu=False), True, False, True),
        (MonitorSpec(host_memory=False), True, True, False),
    ],
)
def test_the_time_series_has_of_the_machine_what_the_workflow_wants(
    monitor: MonitorSpec, rows: bool, cpus: bool, memories: bool, store_path: Path, tmp_path: Path
) -> None:
    store = SqliteStore(str(store_path))
    plan = structs.replace(fan_plan(2), monitor=monitor)
    path = write_run_time_series(store, fill_run(store, plan), plan, str(tmp_path))
    store.close()
    connection = sqlite3.connect(path)
    query = "SELECT count(*), sum(cpu_percent), sum(memory_bytes) FROM system_resource_samples"
    (counts,) = connection.execute(query).fetchall()
    (jobs,) = connection.execute("SELECT count(*) FROM job_resource_samples").fetchone()
    connection.close()
    assert tuple(map(bool, counts)) == (rows, cpus, memories)
    assert jobs > 0


def test_the_time_series_of_a_run_is_read_by_plain_sqlite_and_by_plot(
    store_path: Path, tmp_path: Path, joblens: RunJoblens
) -> None:
    store = SqliteStore(str(store_path))
    plan = fan_plan(2)
    run = fill_run(store, plan)
    path = write_run_time_series(store, run, plan, str(tmp_path / "output"))
    assert path == write_run_time_series(store, run, plan, str(tmp_path / "output"))
    store.close()
    assert Path(path).relative_to(tmp_path / "output").parts == (
        "resource_utilization",
        "resource_metrics_node7_1_1.db",
    )
    connection = sqlite3.connect(path)
    rows = connection.execute(
        """SELECT job_id, timestamp, cpu_percent, memory_bytes, num_processes
           FROM job_resource_samples WHERE job_id = 1 ORDER BY timestamp"""
    ).fetchall()
    names = dict(connection.execute("SELECT * FROM job_metadata"))
    connection.close()
    assert len(rows) > 3
    assert all(memory > 0 for *_, memory, _ in rows)
    assert names[1] == "prepare"
    assert len(names) == len(plan.jobs) + 1  # one was tried twice
    joblens("plot", path, "--job-ids", "1", code=0)


@pytest.mark.root
def test_a_file_of_someone_else_with_a_write_ahead_log_can_be_read() -> None:
    """The folder is not ours to write in, so SQLite cannot make the files it would like to have beside it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become someone else")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = torc_file(Path(folder) / "resource metrics #1.db")
        path.chmod(0o644)
        code = """
import os, sys, urllib.parse  # while its files may still be read
from joblens.stores.sinks.time_series import read_host_series, read_time_series
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(len(list(read_time_series(sys.argv[1]))), len(read_host_series(sys.argv[1])))
"""
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
    assert done.stdout == "3 16\n"


def test_a_job_is_plotted_by_its_name_and_it_is_reported_which_of_several(
    joblens: RunJoblens, store_path: Path
) -> None:
    store = SqliteStore(str(store_path))
    for uuid, name in (("abc1", "melt"), ("abc2", "melt"), ("abc3", "alone")):
        store.apply(whole_job(uuid, name=name, sample_count=4))
    store.close()
    several = joblens("plot", "melt", "--format", "svg", code=0)
    assert "resource_plot_job_2.svg" in several.stdout
    assert "'melt' is job 2, the newest of that name" in several.stderr
    for ident in ("alone", "job:alone"):
        one = joblens("plot", ident, "--format", "svg", code=0)
        assert "resource_plot_job_3.svg" in one.stdout
        assert "is job" not in one.stderr
    assert "'nobody' is not a run, workflow or job" in joblens("plot", "nobody", code=2).stderr
