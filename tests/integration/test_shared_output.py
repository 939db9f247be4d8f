"""Two stores whose runs share an output folder: neither loses what its jobs printed."""

import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_cli import JOBLENS, states

FLOW = 'name: w\njobs: [{{name: a, command: "echo {text}"}}]\n'
SERIES = (
    "name: w\nresource_monitor: {{granularity: time_series, sample_interval_seconds: 1}}\n"
    'jobs: [{{name: a, command: "echo {text}; sleep 0.3"}}]\n'
)


def write(folder: Path, name: str, text: str, form: str = FLOW) -> str:
    (folder / f"{name}.yaml").write_text(form.format(text=text))
    return f"{name}.yaml"


def printed(joblens: RunJoblens, folder: Path, store: str, job: str = "1") -> str:
    return joblens("--store", store, "logs", job, cwd=folder, code=0).stdout


def folders(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / "output" / "job_output").iterdir())


def test_the_second_store_gets_a_folder_of_its_own_and_says_so(tmp_path: Path, joblens: RunJoblens) -> None:
    done = joblens("--store", "one.db", "run", write(tmp_path, "one", "first"), cwd=tmp_path, code=0)
    assert "belongs to" not in done.stderr
    done = joblens("--store", "two.db", "run", write(tmp_path, "two", "second"), cwd=tmp_path, code=0)
    assert "output/job_output/1_1 belongs to another run" in done.stderr
    first, second = folders(tmp_path)
    assert first == "1_1"
    assert second.startswith("1_1-")
    assert second in done.stderr
    assert printed(joblens, tmp_path, "one.db") == "first\n"
    assert printed(joblens, tmp_path, "two.db") == "second\n"
    shown = joblens("--store", "two.db", "workflows", "show", "1", "--json", cwd=tmp_path, code=0).json
    assert shown["runs"][0]["job_output"].endswith(f"output/job_output/{second}")


def test_runs_that_start_together_do_not_share_a_folder(tmp_path: Path, joblens: RunJoblens) -> None:
    names = [f"s{number}" for number in range(4)]
    started = [
        subprocess.Popen(
            [*JOBLENS, "--store", f"{name}.db", "run", write(tmp_path, name, name), "-q"], cwd=tmp_path
        )
        for name in names
    ]
    assert [process.wait(120) for process in started] == [0] * len(names)
    assert len(folders(tmp_path)) == len(names)
    assert [printed(joblens, tmp_path, f"{name}.db") for name in names] == [f"{name}\n" for name in names]


def test_a_resumed_run_goes_on_in_the_folder_it_used(tmp_path: Path, joblens: RunJoblens) -> None:
    flow = (
        "name: w\njobs: [{name: a, command: 'echo a'}, "
        "{name: b, command: 'echo b; touch began; test -e go || sleep 60', depends_on: [a]}]\n"
    )
    (tmp_path / "w.yaml").write_text(flow)
    joblens("--store", "one.db", "run", write(tmp_path, "one", "first"), cwd=tmp_path, code=0)
    stopped = subprocess.Popen(
        [*JOBLENS, "--store", "two.db", "run", "w.yaml", "-q", "--on-interrupt", "kill"], cwd=tmp_path
    )
    wait_until((tmp_path / "began").exists, timeout=60)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait(60) == 130
    before = folders(tmp_path)
    (tmp_path / "go").touch()
    done = joblens("--store", "two.db", "resume", "1.1", "--json", cwd=tmp_path, code=0)
    assert states(done.json) == {"a": "completed", "b": "completed"}
    assert "belongs to" not in done.stderr
    assert folders(tmp_path) == before
    assert len(before) == 2
    assert printed(joblens, tmp_path, "one.db") == "first\n"
    assert printed(joblens, tmp_path, "two.db", "1") == "a\n"


def test_a_copy_of_a_store_does_not_write_over_the_runs_of_the_first(
    tmp_path: Path, joblens: RunJoblens
) -> None:
    joblens("--store", "one.db", "run", write(tmp_path, "w", "begin"), cwd=tmp_path, code=0)
    joblens("--store", "one.db", "store", "backup", "copy.db", cwd=tmp_path, code=0)
    joblens("--store", "one.db", "run", write(tmp_path, "w", "original"), cwd=tmp_path, code=0)
    joblens("--store", "copy.db", "run", write(tmp_path, "w", "copied"), cwd=tmp_path, code=0)
    assert printed(joblens, tmp_path, "one.db", "2") == "original\n"
    assert printed(joblens, tmp_path, "copy.db", "2") == "copied\n"
    assert printed(joblens, tmp_path, "copy.db", "1") == "begin\n"


def test_copies_of_a_store_that_resume_the_same_run_use_folders_of_their_own(
    tmp_path: Path, joblens: RunJoblens
) -> None:
    (tmp_path / "w.yaml").write_text("name: w\njobs: [{name: a, command: 'cat word'}]\n")
    (tmp_path / "word").write_text("one\n")
    joblens("--store", "one.db", "workflows", "create-from-spec", "w.yaml", cwd=tmp_path, code=0)
    shutil.copy(tmp_path / "one.db", tmp_path / "copy.db")
    joblens("--store", "one.db", "run-jobs", "1", cwd=tmp_path, code=0)
    (tmp_path / "word").write_text("copy\n")
    joblens("--store", "copy.db", "run-jobs", "1", cwd=tmp_path, code=0)
    assert printed(joblens, tmp_path, "one.db") == "one\n"
    assert printed(joblens, tmp_path, "copy.db") == "copy\n"


def test_time_series_of_two_stores_are_two_files(tmp_path: Path, joblens: RunJoblens) -> None:
    for name in ("one", "two"):
        joblens("--store", f"{name}.db", "run", write(tmp_path, name, name, SERIES), cwd=tmp_path, code=0)
        single = ("run", "--granularity", "time_series", "--", "sleep", "0.3")
        done = joblens("--store", f"{name}.db", *single, cwd=tmp_path, code=0)
        assert ("belongs to another store" in done.stderr) is (name == "two")
    files = sorted((tmp_path / "output" / "resource_utilization").glob("resource_metrics_*.db"))
    assert len(files) == 4
    found = []
    for file in files:
        with sqlite3.connect(file) as connection:
            found += [row[0] for row in connection.execute("select job_uuid from joblens_jobs")]
    assert len(set(found)) == len(found) == 4
