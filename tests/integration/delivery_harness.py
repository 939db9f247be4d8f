"""Many jobs on a queue, the workers that run them, and what became of each. The jobs note every start of
theirs, so that what really ran can be held against what the store says."""

import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from joblens.app.jobs.requests import Request
from joblens.app.queue.submission import QueueRequest, enqueue, open_queue_store
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Requirements, RetryLost
from joblens.ports.store import QueueStore
from tests.conftest import wait_until

# Told apart by a file each: appending to one file by many is no proof of anything.
_NOTE_START = 'printf "%s %s\\n" "$(date +%s%6N)" "$$" > "$RUNS/$NAME.$$.$(date +%s%N)"; '

_UNLIMITED = Requirements()


class DeliveryHarness:
    def __init__(
        self, folder: Path, store: str, broker: str | None, *, lease_s: float, patch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.runs.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._env = {
            "JOBLENS_STORE": store,
            "JOBLENS_QUEUE_LEASE": f"{lease_s}s",
            "JOBLENS_QUEUE_POLL": "1s",
            "JOBLENS_QUEUE_MOST_DELIVERIES": "20",
        }
        if broker is not None:
            self._env["JOBLENS_QUEUE_BROKER"] = broker
        for name, value in self._env.items():
            patch.setenv(name, value)
        self.settings = load_settings().settings
        self.warnings: list[str] = []
        self.store: QueueStore = open_queue_store(self.settings, self.warned)

    def warned(self, message: str) -> None:
        self.warnings.append(message)

    # ---- workers ---------------------------------------------------------------------------------------

    def start_worker(self, concurrency: int = 4) -> subprocess.Popen[bytes]:
        with open(self.folder / f"worker-{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "joblens", "worker", "-c", str(concurrency)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def kill_worker(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.store.close()

    def logs(self) -> str:
        parts = [f"{path.name}:\n{path.read_text()}" for path in sorted(self.folder.glob("worker-*.log"))]
        return "\n".join(parts)

    # ---- jobs ------------------------------------------------------------------------------------------

    def submit(
        self,
        names: list[str],
        command: str,
        *,
        retry_lost: RetryLost = RetryLost.SAFE,
        requirements: Requirements = _UNLIMITED,
    ) -> list[str]:
        """-> their uuids, in order."""
        requests = [
            QueueRequest(
                request=Request(
                    shell=_NOTE_START + command,
                    name=name,
                    env={"RUNS": str(self.runs), "NAME": name},
                    requirements=requirements,
                ),
                retry_lost=retry_lost,
            )
            for name in names
        ]
        return [record.job.uuid for record in enqueue(requests, self.settings, None, self.warned)]

    def ended(self, uuids: list[str]) -> int:
        """How many of them, as far as the store can be asked."""
        try:
            return sum(status.is_final for status in self.store.states(uuids).values())
        except StoreError:
            return 0

    def wait_for(self, uuids: list[str], count: int, timeout: float = 60.0) -> None:
        def are_there() -> bool:
            return self.ended(uuids) >= count

        try:
            wait_until(are_there, timeout=timeout, what=f"the end of {count} jobs")
        except BaseException:
            sys.stderr.write(self.logs())
            raise

    def records(self) -> dict[str, Record]:
        return {record.job.name: record for record in self.store.records(HistoryQuery())}

    def starts(self) -> dict[str, list[int]]:
        """When each job began, each time it did (µs since 1970)."""
        found: dict[str, list[int]] = defaultdict(list)
        for path in self.runs.iterdir():
            text = path.read_text()
            if text:
                found[path.name.split(".")[0]].append(int(text.split()[0]))
        return found

    def is_quiet(self) -> bool:
        """Nothing waits and nothing is held."""
        return not self.store.backlog() and not self.store.holdings()


def outcomes(records: dict[str, Record]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for record in records.values():
        counts[record.status.value] += record.outcome is not None
    return dict(counts)


def later(seconds: float) -> None:
    """How long something is away is what the test is about."""
    time.sleep(seconds)
