"""Commands against each other and tools' benchmarks, really run."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import joblens as public
from joblens.model.errors import BenchmarkError, UnknownTool
from tests.conftest import RunJoblens, wait_until

TOOL = """
description: writes as many numbers as it is told to
command: ["{program}", "{script}"]
programs: [python3]
suffixes: [.py]
parameters: environment
parameter_prefix: SIM_
benchmark: heat.py
scripts:
  heat.py:
    path: heat.py
    parameters: {seconds: {default: 0.02}, code: {default: 0}}
"""
SCRIPT = """
import os, sys, time
begin = time.process_time()
while time.process_time() - begin < float(os.environ.get("SIM_SECONDS", "0.02")):
    pass
sys.exit(int(os.environ.get("SIM_CODE", "0")))
"""


@pytest.fixture
def solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_path: Path) -> Path:
    """A project with a tool of its own, and the current directory in it."""
    folder = tmp_path / "project"
    tools = folder / ".joblens" / "tools"
    tools.mkdir(parents=True)
    (tools / "heat.py").write_text(SCRIPT)
    (tools / "solver.yaml").write_text(TOOL)
    monkeypatch.chdir(folder)
    return folder


def test_two_commands_run_in_turns_and_the_slower_one_is_reported(joblens: RunJoblens) -> None:
    slow = f"{sys.executable} -S -c 'import time; time.sleep(0.3)'"
    fast = f"{sys.executable} -S -c 'import time; time.sleep(0.02)'"
    done = joblens("bench", "--json", "-n", "6", "--baseline", fast, "--command", slow, code=0).json
    assert [variant["name"] for variant in done["variants"]] == ["A", "B"]
    assert [len(variant["runs"]) for variant in done["variants"]] == [6, 6]
    number = done["comparisons"][0]["numbers"]["duration_seconds"]
    assert number["pairs"] == 6
    assert number["differs"] is True
    assert number["low"] > 1
    starts = sorted(
        (run["start_time"], variant["name"]) for variant in done["variants"] for run in variant["runs"]
    )
    rounds = ["".join(name for _, name in starts[at : at + 2]) for at in range(0, 12, 2)]
    assert {"".join(sorted(one)) for one in rounds} == {"AB"}, "each round has one run of each"
    history = joblens("history", "--json", "--limit", "0", "--tag", "joblens:bench").json
    assert len(history) == 14, "every run is a job, the warm-up included"


def test_only_benchmarks_are_left_out_of_lists_and_counted_where_nothing_else_is(joblens: RunJoblens) -> None:
    joblens("bench", "--no-save", "-n", "1", "--", "true", code=0)
    for command in ("history", "job-history", "stats", "job-stats"):
        assert "2 benchmark runs; --bench shows them" in joblens(command, code=0).stdout
        assert "2 benchmark runs" in joblens(command, "--name", "true", code=0).stdout
        assert "benchmark" not in joblens(command, "--name", "other", code=0).stdout
    joblens("run", "--tag", "bench", "--", "true", code=0)
    assert [job["tags"] for job in joblens("history", "--json", code=0).json] == [["bench"]]
    assert joblens("stats", "--json", code=0).json["total_jobs"] == 1


def test_the_order_of_a_seed_is_the_same_again(joblens: RunJoblens) -> None:
    def order() -> list[str]:
        arguments = ("-n", "8", "-w", "0", "--seed", "3", "-c", "true", "-c", "/bin/true")
        done = joblens("bench", "--json", "--no-save", *arguments, code=0).json
        runs = [(run["start_time"], one["name"]) for one in done["variants"] for run in one["runs"]]
        return [name for _, name in sorted(runs)]

    first = order()
    assert first == order()
    assert first != ["A", "B"] * 8
    assert joblens("bench", "list").stdout == ""


def test_one_command_is_measured_until_it_is_precise_or_time_is_up(joblens: RunJoblens) -> None:
    precise = joblens("bench", "--json", "--precision", "90%", "--", "sleep", "0.01", code=0).json
    assert precise["stopped"] == "precision"
    assert precise["rounds"] >= 6
    assert precise["comparisons"] == []
    late = joblens("bench", "--json", "--precision", "0.0001%", "-t", "0s", "--", "true", code=0).json
    assert (late["stopped"], late["rounds"]) == ("time", 1)


def test_memory_and_bytes_written_are_compared_too(joblens: RunJoblens, tmp_path: Path) -> None:
    def line(mib: int) -> str:
        return f"{sys.executable} -S -c 'x = bytearray({mib} << 20)'"

    done = joblens("bench", "--json", "-n", "6", "-c", line(20), "-c", line(60), code=0).json
    number = done["comparisons"][0]["numbers"]["memory_peak_mb"]
    assert number["ratio"] > 1.8
    assert number["differs"] is True
    assert done["comparisons"][0]["numbers"]["io_write_mb"] is None, "nothing was written"


def test_a_run_that_fails_ends_it_and_says_why(joblens: RunJoblens) -> None:
    done = joblens("bench", "-c", "true", "-c", "echo no room >&2; exit 7", code=1)
    assert done.stdout == "", "nothing was measured"
    assert "B: failed" in done.stderr
    assert "A  true (baseline)" in done.stderr
    assert "B  echo no room >&2; exit 7" in done.stderr
    assert "no room" in done.stderr
    kept = joblens("bench", "--json", "-i", "-n", "2", "-c", "true", "-c", "exit 7", code=0).json
    assert [run["returncode"] for run in kept["variants"][1]["runs"]] == [7, 7]


def test_no_round_is_begun_that_would_end_after_the_time(joblens: RunJoblens) -> None:
    done = joblens(
        "bench", "--json", "--no-save", "--time", "1ms", "-w", "3", "--", "sleep", "0.05", code=0
    ).json
    assert (done["rounds"], done["stopped"]) == (1, "time")
    assert len(joblens("history", "--bench", "--json", code=0).json) == 2, "one to warm up, one that counts"


def test_names_that_are_not_given_are_those_of_their_places(joblens: RunJoblens) -> None:
    three = ("-c", "true", "-c", "true", "-c", "true")
    done = joblens("bench", "--json", "--no-save", "-n", "1", "-N", "longer", "-N", "C", *three, code=0).json
    assert [variant["name"] for variant in done["variants"]] == ["longer", "C", "D"]
    shown = joblens("bench", "--no-save", "-n", "1", "-N", "longer", *three, code=0).stdout
    assert "longer  true (baseline)\nB       true\nC       true\n" in shown


def test_a_report_is_not_written_into_a_folder_that_is_not_there(joblens: RunJoblens, tmp_path: Path) -> None:
    place = tmp_path / "mistyped" / "x.html"
    done = joblens("bench", "-o", str(place), "--", "true", code=2)
    assert "there is no directory" in done.stderr
    joblens("bench", "-n", "1", "--", "true", code=0)
    assert "there is no directory" in joblens("bench", "report", "-o", str(place), code=2).stderr
    assert not place.parent.exists()


def test_a_command_that_is_not_there_is_reported(joblens: RunJoblens) -> None:
    done = joblens("bench", "--", "no-such-command-here", code=1)
    (found,) = done.stderr.splitlines()
    assert "A: no-such-command-here: command not found" in found
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "-n", "2", "echo", "hi"), "goes after --: joblens bench [OPTIONS] -- COMMAND"),
        (("bench", "echo", "hi"), "goes after --: joblens bench [OPTIONS] -- COMMAND"),
        (("bench", "-n", "0", "--", "true"), "--runs"),
        (("bench", "--precision", "often", "--", "true"), "--precision often"),
        (("bench", "--confidence", "20%", "--", "true"), "confidence"),
        (("bench", "--command", " ", "--", "true"), "is empty"),
        (("bench", "-N", "a", "-N", "b", "--", "true"), "2 names for 1 commands"),
        (("bench", "-N", "a", "-N", "a", "-c", "true", "-c", "true"), "same name"),
        (("bench", "ab"), "no command"),
        (("bench", "nonsense"), "No such command"),
        (("bench", "compare", "one", "two"), "no result 'one'"),
        (("bench", "report"), "no results"),
        (("bench", "report", "latest", "-o", "x.txt"), "no results"),
        (("bench", "run"), "no tool was named"),
        (("bench", "run", "--tool", "fenixs"), "fenicsx"),
        (("bench", "run", "--tool", "python", "--script", "not-there.py"), "not-there.py"),
    ],
)
def test_what_cannot_be_used_is_refused(
    joblens: RunJoblens, arguments: tuple[str, ...], message: str
) -> None:
    done = joblens(*arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_keeps_what_there_is(
    store_path: Path, tmp_path: Path, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    mark = tmp_path / "runs"
    line = f"echo x >>{mark}; sleep 0.05"
    command = [sys.executable, "-m", "joblens", "bench", "--json", "--precision", "0.0001%", "-c", line]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    processes_to_end.append(process)
    wait_until(lambda: mark.exists() and len(mark.read_text().split()) >= 4, what="a few runs")
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)
    document = msgspec.json.decode(stdout)
    assert process.returncode == 130
    assert document["stopped"] == "interrupt"
    assert document["rounds"] == len(document["variants"][0]["runs"]) >= 1
    files = list((store_path.parent / "benchmarks").glob("*.json"))
    assert len(files) == 1
    assert stat.S_IMODE(os.stat(files[0]).st_mode) == 0o600


def test_a_tool_is_benchmarked_and_each_run_has_its_profile(solver: Path, tmp_path: Path) -> None:
    runner = public.BenchmarkRunner(results_dir=tmp_path / "results")
    result = runner.run_benchmark("solver", device="cpu", custom_params={"seconds": 0.05}, runs=3)
    assert [run["run_number"] for run in result["runs"]] == [1, 2, 3]
    for run in result["runs"]:
        assert run["success"]
        assert run["cpu_seconds"] >= 0.05
        assert run["detailed_profile"]["duration_seconds"] == pytest.approx(run["duration_seconds"], rel=0.01)
        assert run["resource_usage"]["cpu_total_seconds"] == run["cpu_seconds"]
    metrics = result["metrics"]
    assert metrics["success_rate"] == 100.0
    assert metrics["min_duration"] <= metrics["avg_duration"] <= metrics["max_duration"]
    assert metrics["max_memory"] >= metrics["avg_memory"] > 1
    assert result["params"] == {"seconds": 0.05}
    assert result["system_info"]["cpu_count"] >= 1
    path = runner.save_results(result)
    assert runner.load_results(result["id"]) == runner.load_results(path) == runner.load_results("latest")
    assert [one["id"] for one in runner.load_results()] == [result["id"]]


def test_faster_is_a_speedup_above_one(solver: Path, tmp_path: Path) -> None:
    runner = public.BenchmarkRunner(results_dir=tmp_path / "results")
    slow = runner.run_benchmark("solver", custom_params={"seconds": 0.3}, runs=4, warmup=0)
    fast = runner.run_benchmark("solver", custom_params={"seconds": 0.01}, runs=4, warmup=0)
    runner.save_results(slow)
    compared = runner.compare_results(slow["id"], fast)
    assert compared["speedup"] > 1
    assert compared["percent_change"] < 0
    assert compared["time_saved_seconds"] > 0
    assert compared["differs"] is True
    assert compared["speedup_low"] <= compared["speedup"] <= compared["speedup_high"]
    assert compared["same_machine"] is True
    assert compared["parameter_changes"] == {"seconds": [0.3, 0.01]}
    assert "seconds 0.3 → 0.01" in runner.generate_report([slow, fast])
    with pytest.raises(BenchmarkError, match="cannot be compared with itself"):
        runner.compare_results(slow["id"], "latest")
    with pytest.raises(BenchmarkError, match="the list of results is empty"):
        runner.generate_report([])


def test_a_benchmark_whose_runs_all_fail_is_a_result(solver: Path, tmp_path: Path) -> None:
    runner = public.BenchmarkRunner(results_dir=tmp_path / "results")
    good = runner.run_benchmark("solver", runs=2, warmup=0)
    bad = runner.run_benchmark("solver", custom_params={"code": 4}, runs=2, warmup=0)
    assert bad["metrics"]["success_rate"] == 0.0
    assert set(bad["metrics"]) == set(good["metrics"])
    assert bad["metrics"]["avg_duration"] is None
    assert [run["returncode"] for run in bad["runs"]] == [4, 4]
    assert bad["error"]
    compared = runner.compare_results(good, bad)
    assert compared["speedup"] is None
    assert "no run of" in compared["reason"]
    assert "0%" in runner.generate_report([good, bad])


def test_a_report_is_written_with_its_pictures(solver: Path, tmp_path: Path) -> None:
    runner = public.BenchmarkRunner(results_dir=tmp_path / "results")
    result = runner.run_benchmark("solver", runs=2, warmup=0)
    (tmp_path / "out").mkdir()
    text = runner.generate_report(result, tmp_path / "out" / "report.md")
    assert (tmp_path / "out" / "report.md").read_text() == text
    (picture,) = (tmp_path / "out").glob("*.svg")
    assert f"]({picture.name})" in text
    runner.generate_report(result, tmp_path / "report.html")
    assert "<svg" in (tmp_path / "report.html").read_text()
    with pytest.raises(BenchmarkError, match=r"\.html or \.md"):
        runner.generate_report(result, tmp_path / "report.pdf")


def test_bad_input_is_reported_before_anything_runs(solver: Path, tmp_path: Path) -> None:
    runner = public.BenchmarkRunner(results_dir=tmp_path / "results")
    with pytest.raises(UnknownTool, match="solver"):
        runner.run_benchmark("sovler")
    with pytest.raises(BenchmarkError, match="device 'tpu'"):
        runner.run_benchmark("solver", device="tpu")
    with pytest.raises(BenchmarkError, match="runs 0"):
        runner.run_benchmark("solver", runs=0)
    (solver / ".joblens" / "tools" / "solver.yaml").write_text(TOOL.replace("benchmark: heat.py", ""))
    with pytest.raises(BenchmarkError, match="has no benchmark script"):
        runner.run_benchmark("solver")
    with pytest.raises(BenchmarkError, match="not the result"):
        runner.compare_results({}, {})
    assert runner.load_results() == []


def test_a_file_that_is_no_result_is_warned_of_and_the_others_are_read(
    joblens: RunJoblens, store_path: Path
) -> None:
    joblens("bench", "-n", "1", "-w", "0", "--title", "good one", "--", "true", code=0)
    folder = store_path.parent / "benchmarks"
    (folder / "torn.json").write_text('{"kind": "tool", "id"')
    (folder / "other.json").write_text('{"hello": 1}')
    done = joblens("bench", "list", code=0)
    assert "good one" in done.stdout
    assert "torn.json" in done.stderr
    assert "other.json" in done.stderr
    assert "torn.json" in joblens("bench", "compare", "torn", "good-one", code=2).stderr


def test_the_command_runs_a_tool_and_compares_results(solver: Path, joblens: RunJoblens) -> None:
    common = ("bench", "run", "--tool", "solver", "--json", "-w", "0")
    first = joblens(*common, "-n", "4", "-p", "seconds=0.01", cwd=solver, code=0).json[0]
    second = joblens(*common, "-n", "4", "-p", "seconds=0.25", cwd=solver, code=0).json[0]
    slower = joblens("bench", "compare", first["id"], second["id"], cwd=solver)
    assert slower.code == 3, "it takes more time for certain"
    assert "more" in slower.stdout
    assert "! they differ: seconds 0.01 → 0.25" in slower.stdout
    assert "seconds=0.25" in joblens("bench", "list", cwd=solver, code=0).stdout
    assert joblens("bench", "compare", second["id"], first["id"], cwd=solver).code == 0
    failed = joblens(*common, "-n", "1", "-p", "code=5", "--device", "all", cwd=solver, code=1)
    assert failed.json[0]["metrics"]["successful_runs"] == 0
    assert "not on gpu" in failed.stderr
