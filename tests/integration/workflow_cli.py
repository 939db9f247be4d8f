"""Workflows for the tests: files written, run by the real command line, and looked at afterwards."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.runs.run import JobResult, Run
from joblens.stores.sqlite import SqliteStore
from tests.conftest import REPOSITORY, Finished, RunJoblens, python_path, wait_until

JOBLENS = [sys.executable, "-m", "joblens"]


def local_cluster(*arguments: str | Path) -> list[str]:
    """joblens with a cluster of this machine as Slurm."""
    return [sys.executable, "-m", "tests.local_backend", *map(str, arguments)]


def local_cluster_env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}


@contextmanager
def slurm_cli(folder: Path, joblens: RunJoblens, store_path: Path) -> Iterator["WorkflowCli"]:
    """For a real Slurm: settings that notice changes soon, in a folder that jobs of other users can read."""
    folder.chmod(0o755)
    (folder / "joblens.yml").write_text("slurm:\n  poll: 1s\nqueue:\n  lease: 5s\n")
    cli = WorkflowCli(folder, joblens, store_path)
    try:
        yield cli
    finally:
        (folder / "go").touch()
        cli.close()


class WorkflowCli:
    """One folder with workflow files, one store."""

    def __init__(self, folder: Path, joblens: RunJoblens, store_path: Path) -> None:
        self.folder = folder
        self.store_path = store_path
        self._joblens = joblens
        self._started: list[subprocess.Popen[str]] = []

    def write(self, text: str, name: str = "flow.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def call(self, *arguments: str | Path, code: int | None = None, timeout: float = 60.0) -> Finished:
        return self._joblens(*arguments, cwd=self.folder, code=code, timeout=timeout)

    def run(self, text: str, *arguments: str, code: int = 0, timeout: float = 60.0) -> dict[str, Any]:
        """Runs the workflow to its end. -> the final document"""
        path = self.write(text)
        document = self.call("run", path, "--json", *arguments, code=code, timeout=timeout).json
        assert isinstance(document, dict)
        return document

    def call_local_cluster(self, *arguments: str | Path, code: int = 0) -> Finished:
        done = subprocess.run(
            local_cluster(*arguments),
            cwd=self.folder,
            env=local_cluster_env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return Finished(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        """In the background of the test, alone in its process group."""
        return self._start([*JOBLENS, *map(str, arguments)], dict(os.environ))

    def start_local_cluster(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        return self._start(local_cluster(*arguments), local_cluster_env())

    def _start(self, command: list[str], env: dict[str, str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def adopt(self, process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
        """One that a test has started in its own way."""
        self._started.append(process)
        return process

    def close(self) -> None:
        """Ends what a test that failed has left running."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=30)
            if process.stdout is not None:  # a pipe left open is a warning in some later test
                process.stdout.close()

    def store(self) -> SqliteStore:
        return SqliteStore(str(self.store_path))

    def newest_run(self) -> Run:
        store = self.store()
        try:
            workflow = store.workflows()[0]
            return store.find_run(store.runs(workflow.uuid)[-1].uuid)
        finally:
            store.close()

    def results(self, run_uuid: str | None = None) -> list[JobResult]:
        uuid = run_uuid or self.newest_run().uuid
        store = self.store()
        try:
            return store.run_results(uuid)
        finally:
            store.close()

    def records(self) -> dict[str, Record]:
        """By the names of their jobs."""
        store = self.store()
        try:
            return {record.job.name: record for record in store.records(HistoryQuery(limit=1000))}
        finally:
            store.close()

    def records_of(self, run: Run) -> dict[str, Record]:
        """By the names of their jobs."""
        store = self.store()
        try:
            found = list(store.records(HistoryQuery(run_uuid=run.uuid)))
        finally:
            store.close()
        return {record.job.name: record for record in found}

    def lines(self, name: str) -> list[str]:
        """Of a file that jobs append to."""
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def wait_for_line(self, name: str, line: str) -> None:
        wait_until(lambda: line in self.lines(name))


def states(document: dict[str, Any]) -> dict[str, str]:
    return {row["job_name"]: row["status"] for row in document["results"]}


def counted(document: dict[str, Any]) -> Counter[str]:
    return Counter(row["status"] for row in document["results"])


def interrupt(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)
