"""The commands that read, as real processes on a real store."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joblens.model.jobs.job import Outcome, Status
from joblens.model.writes import JobEnded, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_jobs
from tests.builders.past_jobs import CAVITY, LAMMPS, POISSON, RUNNING, samples
from tests.builders.records import START_US
from tests.builders.writes import whole_job
from tests.conftest import RunJoblens


@pytest.fixture
def past(store_path: Path) -> Path:
    """Three ended jobs; what poisson printed is kept."""
    past_jobs.fill(store_path, store_path.parent / "logs")
    return store_path


@pytest.fixture
def present(past: Path) -> Path:
    """The same, and a job that is running."""
    logs = past.parent / "logs" / RUNNING
    logs.mkdir(parents=True)
    (logs / "stdout.log").write_text("first\n")
    store = SqliteStore(str(past))
    store.apply(past_jobs.running(str(logs)))
    store.close()
    return past


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "joblens", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_running(path: Path, *, exit_code: int = 0) -> None:
    store = SqliteStore(str(path))
    status = Status.FAILED if exit_code else Status.SUCCESS
    outcome = Outcome(status=status, ended_at_us=START_US + 460_000_000, duration_s=60.0, exit_code=exit_code)
    store.apply([JobEnded(RUNNING, outcome)])
    store.close()


# history and stats


def test_history_is_a_table_newest_first(past: Path, joblens: RunJoblens) -> None:
    titles, *rows = joblens("history", code=0).stdout.splitlines()
    assert titles.split() == ["ID", "#", "NAME", "STATUS", "STARTED", "TOOK", "CPU", "MEMORY", "I/O"]
    assert [row.split()[2] for row in rows] == ["poisson", "melt", "cavity"]


def test_history_as_json_is_one_document_in_the_history_form(past: Path, joblens: RunJoblens) -> None:
    records = joblens("history", "--json", code=0).json
    assert [record["task_id"] for record in records] == [POISSON, "my-task-123", CAVITY]
    assert records[0]["resource_usage"]["cpu_total_seconds"] == 297.79


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--tool", "lammps"], ["melt"]),
        (["--status", "failed", "--status", "error"], ["melt", "cavity"]),
        (["--tag", "grid=64"], ["poisson"]),
        (["--name", "*v*"], ["cavity"]),
        (["--user", "bob"], ["melt"]),
        (["--since", "2025-10-15T10:29:00"], ["poisson"]),
        (["--until", "2025-10-15T10:22:00"], ["cavity"]),
        (["--limit", "1"], ["poisson"]),
        (["--sort", "memory", "--limit", "2"], ["poisson", "melt"]),
        (["--sort", "name"], ["cavity", "melt", "poisson"]),
        (["--reverse"], ["cavity", "melt", "poisson"]),
    ],
)
def test_history_can_be_narrowed_and_sorted(
    past: Path, joblens: RunJoblens, options: list[str], names: list[str]
) -> None:
    assert [record["name"] for record in joblens("history", "--json", *options, code=0).json] == names


def test_an_empty_store_says_how_to_begin(store_path: Path, joblens: RunJoblens) -> None:
    SqliteStore(str(store_path)).close()
    assert joblens("history", code=0).stdout == "No jobs yet. Run one: joblens run -- CMD\n"
    assert joblens("history", "--json", code=0).json == []


def test_filters_that_match_nothing_say_so(past: Path, joblens: RunJoblens) -> None:
    assert joblens("history", "--tool", "nothing", code=0).stdout.startswith("No jobs match.")


def test_job_history_has_the_short_options_and_one_paragraph_a_job(past: Path, joblens: RunJoblens) -> None:
    text = joblens("job-history", "-l", "5", "-t", "lammps", "-s", "failed", code=0).stdout
    assert text.splitlines() == [
        "Job History (showing 1 job):",
        "",
        "1. Task: my-task-123",
        "   Tool: lammps, Script: example.lammps",
        "   Status: FAILED",
        "   Started: 2025-10-15T10:25:00.000000+00:00",
        "   Duration: 45.67s",
        "   CPU Time: 42.33s (user: 40.12s, system: 2.21s)",
        "   Memory Peak: 512.34 MB",
        "   Error: Simulation failed with non-zero exit code",
        "",
        "MB and GB are MiB and GiB: 1024² and 1024³ bytes",
    ]


def test_stats_count_ended_jobs_and_job_stats_tell_the_same(past: Path, joblens: RunJoblens) -> None:
    found = joblens("stats", "--json", code=0).json
    assert (found["total_jobs"], found["successful"], found["success_rate"]) == (3, 1, 33.33)
    assert "Total Jobs: 3" in joblens("job-stats", code=0).stdout
    assert joblens("stats", code=0).stdout.startswith("3 ended jobs: ")


# one job


@pytest.mark.parametrize("ident", [POISSON, "3f8a", "3", POISSON.upper()])
def test_a_job_is_found_by_uuid_prefix_and_number(past: Path, joblens: RunJoblens, ident: str) -> None:
    assert joblens("show", ident, "--json", code=0).json["job_uuid"] == POISSON


def test_a_job_is_found_by_its_own_id(past: Path, joblens: RunJoblens) -> None:
    assert joblens("job-details", "my-task-123", code=0).stdout.startswith("Job Details: my-task-123\n")


def test_a_name_stands_for_the_newest_job_of_that_name_and_it_is_reported_which(
    store_path: Path, joblens: RunJoblens
) -> None:
    store = SqliteStore(str(store_path))
    store.apply([*whole_job("abc1", name="melt"), *whole_job("abc2", name="melt")])
    store.close()
    shown = joblens("show", "melt", "--json")
    assert shown.json["record"]["job"]["uuid"] == "abc2"
    assert shown.stderr == "joblens: 'melt' is job 2, the newest of that name\n"
    for command in ("metrics", "wait", "cancel"):
        assert "'melt' is job 2" in joblens(command, "melt").stderr


def test_an_ambiguous_prefix_lists_the_candidates(past: Path, joblens: RunJoblens) -> None:
    others = [f"3f8a{place}000-0000-4000-8000-000000000000" for place in (1, 2)]
    store = SqliteStore(str(past))
    store.apply([write for uuid in others for write in whole_job(uuid)])
    store.close()
    failed = joblens("show", "3f8a", code=2)
    for uuid in (POISSON, *others):
        assert uuid in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("command", ["show", "metrics", "wait"])
def test_what_other_commands_tell_to_write_for_a_job_is_understood(
    past: Path, joblens: RunJoblens, command: str
) -> None:
    plain = joblens(command, "3", "--json", code=0)
    assert joblens(command, "job:3", "--json", code=0).stdout == plain.stdout


def test_job_details_takes_every_id_that_job_history_shows(past: Path, joblens: RunJoblens) -> None:
    shown = re.findall(r"^\d+\. Task: (.+)$", joblens("job-history", code=0).stdout, re.MULTILINE)
    assert len(shown) == 3
    assert any(ident.endswith("...") for ident in shown)
    for ident in shown:
        assert joblens("job-details", ident, code=0).stdout.startswith(f"Job Details: {ident.rstrip('.')}")


@pytest.mark.parametrize("command", ["show", "job-details", "metrics", "logs", "wait"])
def test_an_unknown_id_is_an_error_with_exit_code_2(past: Path, joblens: RunJoblens, command: str) -> None:
    failed = joblens(command, "ffff", code=2)
    assert "ffff" in failed.stderr
    assert failed.stdout == ""


def test_show_has_findings_sources_bounds_and_curves(past: Path, joblens: RunJoblens) -> None:
    text = joblens("show", "3f8a", code=0).stdout
    assert text.index("Findings") < text.index("Usage") < text.index("Over time")
    assert "≥2.0 GiB" in text
    assert "cgroup v2 cpu.stat" in text
    assert "out-of-memory kills (the memory controller has no events file here)" in text


def test_show_as_json_has_the_history_form_and_every_field(past: Path, joblens: RunJoblens) -> None:
    shown = joblens("show", "3f8a", "--json", code=0).json
    assert shown["duration_seconds"] == 330.123456
    assert shown["record"]["attempt"]["pid"] == 4242


# metrics


def test_metrics_of_an_ended_job_are_all_its_samples(past: Path, joblens: RunJoblens) -> None:
    lines = joblens("--json", "metrics", "3f8a", code=0).json_lines
    assert [line["elapsed_us"] for line in lines] == [sample.elapsed_us for sample in samples(60)]


def test_job_metrics_is_the_same_command(past: Path, joblens: RunJoblens) -> None:
    text = joblens("job", "metrics", "3f8a", code=0).stdout
    assert text.count("═══ Metrics Sample at ") == 60
    assert "  Open FDs: 45/1024" in text
    assert "  Count: 3 (max: 100)" in text


def test_metrics_can_begin_later_and_show_chosen_fields(past: Path, joblens: RunJoblens) -> None:
    chosen = joblens("metrics", "3f8a", "--since", "+58s", "--fields", "elapsed_us,memory.anon", code=0)
    assert [set(line) for line in chosen.json_lines] == [{"elapsed_us", "memory"}] * 2
    assert [line["elapsed_us"] for line in chosen.json_lines] == [58_000_000, 59_000_000]


def test_a_field_that_does_not_exist_is_refused_with_those_that_do(past: Path, joblens: RunJoblens) -> None:
    failed = joblens("metrics", "3f8a", "--fields", "cpu.speed", code=2)
    assert "usage_percent" in failed.stderr


def test_metrics_as_a_table_have_a_line_a_sample(past: Path, joblens: RunJoblens) -> None:
    titles, *lines = joblens("metrics", "3f8a", "--table", code=0).stdout.splitlines()
    assert titles.split()[:4] == ["TIME", "CPU", "MEMORY", "READ/S"]
    assert len(lines) == 60
    assert [line.split()[0] for line in lines[:2]] == ["10:30:00", "10:30:01"]
    later = joblens("metrics", "3f8a", "--table", "--since", "+58s", code=0).stdout.splitlines()
    assert later[1:] == lines[58:]  # with the rates they have among all
    for other in ("--json", "--fields=timestamp"):
        assert "cannot be combined" in joblens("metrics", "3f8a", "--table", other, code=2).stderr


def test_metrics_as_a_table_follow_a_running_job(
    present: Path, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    follower = start("metrics", RUNNING, "--table")
    processes_to_end.append(follower)
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in range(6)]  # out at once, though the job runs on
    assert [line.split()[0] == "TIME" for line in seen] == [True, *[False] * 5]
    end_running(present)
    assert follower.stdout.read() == ""
    assert follower.wait(timeout=20) == 0


def test_metrics_follow_a_running_job_to_its_end_with_none_missing_and_none_twice(
    present: Path, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    follower = start("metrics", RUNNING, "--json")
    processes_to_end.append(follower)
    assert follower.stdout is not None
    seen = [msgspec.json.decode(follower.stdout.readline())["elapsed_us"]]  # it is up and reading
    store = SqliteStore(str(present))
    everything = samples(40, start_us=START_US + 400_000_000)
    for first in range(5, 40, 3):
        store.apply([SamplesTaken(RUNNING, first, everything[first : first + 3])])
    store.close()
    end_running(present)
    rest = follower.stdout.read()  # not `communicate`, which misses what was read ahead of the first line
    complaints = follower.communicate(timeout=20)[1]
    seen += [msgspec.json.decode(line)["elapsed_us"] for line in rest.splitlines()]
    assert seen == [sample.elapsed_us for sample in everything]
    assert (follower.returncode, complaints) == (0, "")


def test_metrics_without_following_end_at_what_is_there(present: Path, joblens: RunJoblens) -> None:
    assert len(joblens("metrics", RUNNING, "--no-follow", "--json", code=0).json_lines) == 5


# running jobs


def test_list_shows_what_is_running_and_nothing_else(present: Path, joblens: RunJoblens) -> None:
    assert [record["job_uuid"] for record in joblens("list", "--json", code=0).json] == [RUNNING]
    assert "sleep 60" in joblens("list", code=0).stdout


def test_list_of_nothing_says_so(past: Path, joblens: RunJoblens) -> None:
    assert joblens("list", code=0).stdout.startswith("Nothing is running.")


def test_wait_has_the_jobs_exit_code(past: Path, joblens: RunJoblens) -> None:
    joblens("wait", POISSON, code=0)
    joblens("wait", POISSON, CAVITY, LAMMPS, code=127)


def test_wait_gives_up_after_its_timeout_and_leaves_the_job_alone(present: Path, joblens: RunJoblens) -> None:
    joblens("wait", RUNNING, "--timeout", "300ms", code=124)
    assert [record["status"] for record in joblens("list", "--json").json] == ["running"]


def test_wait_ends_when_the_job_does(present: Path, processes_to_end: list[subprocess.Popen[Any]]) -> None:
    waiter = start("wait", RUNNING, "--json")
    processes_to_end.append(waiter)
    end_running(present, exit_code=7)
    out, _ = waiter.communicate(timeout=20)
    assert waiter.returncode == 7
    assert msgspec.json.decode(out)["status"] == "failed"


def test_logs_are_what_the_job_printed(past: Path, joblens: RunJoblens) -> None:
    assert joblens("logs", "3f8a", code=0).stdout == "one\ntwo\nthree\n"
    assert joblens("logs", "3f8a", "--tail", "2", code=0).stdout == "two\nthree\n"
    assert joblens("logs", "3f8a", "--stderr", code=0).stdout == "warning: coarse mesh\n"


def test_logs_that_were_not_kept_are_an_error(past: Path, joblens: RunJoblens) -> None:
    assert "was not recorded" in joblens("logs", LAMMPS, code=2).stderr
    assert "never started" in joblens("logs", CAVITY, code=2).stderr


def test_logs_follow_until_the_job_ends(present: Path, processes_to_end: list[subprocess.Popen[Any]]) -> None:
    follower = start("logs", RUNNING, "--follow")
    processes_to_end.append(follower)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "first\n"
    with (present.parent / "logs" / RUNNING / "stdout.log").open("a") as file:
        file.write("second\n")
    end_running(present)
    assert follower.communicate(timeout=20)[0] == "second\n"
    assert follower.returncode == 0


def test_top_without_a_terminal_is_one_picture(present: Path, joblens: RunJoblens) -> None:
    assert "sleeper" in joblens("top", code=0).stdout
    (job,) = joblens("top", "--json", code=0).json["jobs"]
    assert (job["job_uuid"], job["processes"]) == (RUNNING, 3)


def test_top_on_a_terminal_redraws_until_q_and_gives_the_terminal_back(
    present: Path, processes_to_end: list[subprocess.Popen[Any]], wait_until: Callable[..., Any]
) -> None:
    outside, inside = pty.openpty()
    top = subprocess.Popen(
        [sys.executable, "-m", "joblens", "top", "--interval", "200ms"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
    )
    processes_to_end.append(top)
    os.close(inside)
    picture = bytearray()

    def read() -> None:
        while True:
            try:
                picture.extend(os.read(outside, 65536))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: picture.count(b"sleeper") >= 2, what="two pictures")
    os.write(outside, b"q")
    assert top.wait(timeout=10) == 0
    reader.join()
    os.close(outside)
    assert picture.startswith(b"\x1b[?1049h")
    assert picture.rstrip().endswith(b"\x1b[?1049l")


# export and import


def test_history_goes_out_and_comes_back_the_same(past: Path, joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("export", "history", "-o", tmp_path / "h.jsonl", code=0)
    other = tmp_path / "other.db"
    for _ in range(2):  # the second time changes nothing
        joblens("--store", other, "import", "history", tmp_path / "h.jsonl", code=0)
    before = joblens("history", "--json", code=0).json
    after = joblens("history", "--json", "--store", other, code=0).json
    for record in before + after:
        del record["number"]
        record["logs_dir"] = ""  # the output stays where it was
    assert after == before


def test_samples_go_out_as_gzip_files_and_come_back_the_same(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    joblens("export", "samples", "-o", tmp_path / "metrics", code=0)
    files = list((tmp_path / "metrics").rglob("*"))
    assert tmp_path / "metrics" / POISSON / "20251015-103000.jsonl.gz" in files
    other = tmp_path / "other.db"
    for _ in range(2):
        joblens("--store", other, "import", "samples", tmp_path / "metrics", code=0)
    store = SqliteStore(str(other))
    assert [sample for _, sample in store.samples(POISSON)] == list(samples(60))
    store.close()


def test_a_record_imported_after_its_samples_tells_how_the_job_ended(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    joblens("export", "samples", "-o", tmp_path / "metrics", code=0)
    joblens("export", "history", "-o", tmp_path / "h.jsonl", code=0)
    other = tmp_path / "other.db"
    joblens("--store", other, "import", "samples", tmp_path / "metrics", code=0)
    assert joblens("--store", other, "show", POISSON, "--json").json["status"] == "lost"
    joblens("--store", other, "import", "history", tmp_path / "h.jsonl", code=0)
    assert joblens("--store", other, "show", POISSON, "--json").json["status"] == "success"


def test_time_series_go_out_and_come_back(past: Path, joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("export", "time-series", "-o", tmp_path / "ts.db", code=0)
    other = tmp_path / "other.db"
    for _ in range(2):
        joblens("--store", other, "import", "time-series", tmp_path / "ts.db", code=0)
    (record,) = joblens("--store", other, "history", "--json", code=0).json
    assert (record["name"], record["samples"]) == ("poisson", 60)
    assert record["resource_usage"]["memory_peak_mb"] > 0
    assert "memory_peak_bytes" in record["accounting"]["lower_bounds"]


def test_a_time_series_and_its_history_are_one_job(past: Path, joblens: RunJoblens, tmp_path: Path) -> None:
    joblens("export", "time-series", "-o", tmp_path / "ts.db", code=0)
    joblens("export", "history", "--name", "poisson", "-o", tmp_path / "h.jsonl", code=0)
    forms = (("time-series", "ts.db"), ("history", "h.jsonl"))
    for other, order in ((tmp_path / "a.db", forms), (tmp_path / "b.db", forms[::-1])):
        for form, file in order:
            joblens("--store", other, "import", form, tmp_path / file, code=0)
        (record,) = joblens("--store", other, "history", "--json", code=0).json
        assert (record["job_uuid"], record["status"]) == (POISSON, "success")
        assert len(joblens("--store", other, "metrics", POISSON, "--json", code=0).json_lines) == 60


def test_one_jobs_samples_can_go_to_standard_output(past: Path, joblens: RunJoblens) -> None:
    out = joblens("export", "samples", "--job", "3f8a", code=0).json_lines
    assert len(out) == 60


def test_tables_have_one_row_a_job_or_a_sample(past: Path, joblens: RunJoblens, tmp_path: Path) -> None:
    titles, *rows = joblens("export", "csv", code=0).stdout.splitlines()
    assert titles.startswith("job_uuid,number,task_id,name")
    assert len(rows) == 3
    joblens("export", "csv", "--samples", "-o", tmp_path / "samples.csv", code=0)
    assert len((tmp_path / "samples.csv").read_text().splitlines()) == 61


def test_parquet_has_typed_columns(past: Path, joblens: RunJoblens, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    joblens("export", "parquet", "--samples", "-o", tmp_path / "samples.parquet", code=0)
    table = parquet.read_table(tmp_path / "samples.parquet")
    assert table.num_rows == 60
    assert str(table.schema.field("at_us").type) == "timestamp[us, tz=UTC]"
    assert table.column("cpu_total_usec")[59].as_py() == samples(60)[59].cpu_total_usec


def test_bad_lines_are_reported_by_number_and_the_rest_is_imported(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    good = '{"task_id":"first","tool":"t","script":"s","params":{},"start_time":"2025-10-15T10:30:00.000000",'
    good += (
        '"end_time":"2025-10-15T10:35:30.123456","duration_seconds":330.12,"status":"success","returncode":0}'
    )
    file = tmp_path / "jobs_history.jsonl"
    file.write_text(f'{good}\n{{"task_id": "torn", "sta\n\n{good.replace("first", "second")}\n')
    done = joblens("import", "history", file, "--json", code=0)
    assert (done.json["jobs"], done.json["bad_lines"]) == (2, 1)
    assert f"{file}:2: " in done.stderr
    assert f"{file}:2: " in joblens("import", "history", file, "--strict", code=2).stderr


@pytest.mark.parametrize("form", ["history", "samples", "time-series"])
def test_a_file_of_another_kind_is_refused(joblens: RunJoblens, tmp_path: Path, form: str) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    failed = joblens("import", form, tmp_path / "picture.png", code=2)
    assert f"joblens: error: no line of it could be read as '{form}'" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_file_cut_off_in_the_middle_gives_what_it_has(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    joblens("export", "samples", "--job", "3f8a", "-o", tmp_path / "whole.jsonl.gz", code=0)
    whole = (tmp_path / "whole.jsonl.gz").read_bytes()
    (tmp_path / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    done = joblens(
        "--store", tmp_path / "other.db", "import", "samples", tmp_path / "torn.jsonl.gz", "--json", code=0
    )
    assert 0 < done.json["samples"] < 60
    assert "torn.jsonl.gz" in done.stderr


# looking after the store


def test_prune_drops_samples_and_output_and_keeps_records(past: Path, joblens: RunJoblens) -> None:
    planned = joblens("prune", "--older-than", "1d", "--dry-run", "--json", code=0).json
    assert (planned["samples"]["samples"], planned["log_folders"]) == (60, 1)
    assert joblens("logs", "3f8a", code=0).stdout  # nothing happened
    joblens("prune", "--older-than", "1d", code=0)
    assert joblens("metrics", "3f8a", "--json", code=0).json_lines == []
    assert "no longer exists" in joblens("logs", "3f8a", code=2).stderr
    assert len(joblens("history", "--json").json) == 3


def test_prune_of_young_jobs_does_nothing(past: Path, joblens: RunJoblens) -> None:
    assert joblens("prune", "--older-than", "9999d", code=0).stdout == "Nothing to prune.\n"


def test_the_store_can_be_checked_backed_up_and_compacted(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    assert joblens("store", "check", "--json", code=0).json["ok"] is True
    assert joblens("store", "path", code=0).stdout == f"{past}\n"
    joblens("store", "backup", tmp_path / "copy.db", code=0)
    joblens("store", "backup", tmp_path / "copy.db", code=2)
    joblens("store", "backup", tmp_path / "no" / "copy.db", code=2)
    joblens("store", "vacuum", code=0)
    copied = joblens("--store", tmp_path / "copy.db", "history", "--json", code=0).json
    assert len(copied) == 3


def test_a_compacted_store_is_not_larger_than_before(past: Path, joblens: RunJoblens) -> None:
    sizes = joblens("store", "vacuum", "--json", code=0).json
    assert 0 < sizes["bytes_after"] <= sizes["bytes_before"]


# settings, machine, grammar


def test_config_show_tells_where_each_value_comes_from(joblens: RunJoblens, tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text("job_metrics:\n  retention_days: 7\n")
    shown = joblens("--config", file, "config", "show", "--json", code=0).json
    assert shown["job_metrics.retention_days"] == {"value": 7.0, "origin": f"{file}:2"}
    assert shown["store.url"]["origin"] == "environment JOBLENS_STORE"
    assert shown["limits.enforce"]["origin"] == "default"
    assert f"{file}  read" in joblens("--config", file, "config", "path", code=0).stdout


def test_doctor_tells_each_gap_with_its_reason(joblens: RunJoblens) -> None:
    report = joblens("doctor", "--json", code=0).json
    assert {"accounting", "numbers", "limits", "storage", "extras"} <= {
        entry["area"] for entry in report["capabilities"]
    }
    assert all(entry["available"] or entry["reason"] for entry in report["capabilities"])
    gaps = [
        entry for entry in report["capabilities"] if not entry["available"] and entry.get("applies", True)
    ]
    assert all(entry["fix"] for entry in gaps)
    counts = (report["available"], report["missing"], report["not_applicable"])
    assert sum(counts) == len(report["capabilities"])
    assert report["missing"] == len(gaps)


def test_doctor_names_the_sqlite_that_is_used(joblens: RunJoblens) -> None:
    capabilities = joblens("doctor", "--json", code=0).json["capabilities"]
    (row,) = [entry for entry in capabilities if entry["name"] == "sqlite"]
    assert row["mechanism"].startswith("SQLite 3.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(joblens: RunJoblens, shell: str) -> None:
    assert "_JOBLENS_COMPLETE" in joblens("completion", shell, code=0).stdout


def test_job_ids_are_completed(past: Path, joblens: RunJoblens) -> None:
    asked = {"_JOBLENS_COMPLETE": "bash_complete", "COMP_WORDS": "joblens show 3f8", "COMP_CWORD": "2"}
    assert sorted(joblens(env=asked).stdout.split()) == ["plain,3f8a21b2", "plain,3f8b0000"]


def test_options_may_stand_before_or_after_the_command(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    expected = joblens("stats", "--json", "--store", past, code=0).json
    elsewhere = {"JOBLENS_STORE": str(tmp_path / "empty.db")}
    places: list[list[str | Path]] = [
        ["--json", "--store", past, "stats"],
        ["--format", "json", "stats", "--store", past],
        ["--store", tmp_path / "wrong.db", "stats", "--store", past, "--format", "json"],
    ]
    for arguments in places:
        assert joblens(*arguments, env=elsewhere, code=0).json == expected


def test_an_unknown_command_suggests_the_nearest(joblens: RunJoblens) -> None:
    assert "did you mean 'joblens history'" in joblens("histroy", code=2).stderr


def test_a_reader_that_goes_away_is_no_error(past: Path, joblens: RunJoblens) -> None:
    shell = f"{sys.executable} -m joblens metrics 3f8a | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.startswith("═══ Metrics Sample")
    assert done.stderr == ""
