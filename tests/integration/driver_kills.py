"""Drivers of workflows and maps that are killed at random moments, and counts of what joblens then has wrong.

Each job appends a line to a file when it begins and when it ends: the truth is known without joblens."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from msgspec import Struct, field

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until

JOBS, AT_ONCE = 60, 3
SHORT_S, MIXED_S = (0.001, 0.030), (0.010, 0.200)
_FAILS_EVERY = 7
_TRACE = 'echo "{word} $JOBLENS_JOB_ID {name}" >> trace'
_MAP = """
import json, joblens
list(joblens.map_commands([["sh", "-c", line] for line in json.load(open("lines"))], jobs={at_once}))
"""
JOBLENS = [sys.executable, "-m", "joblens"]


class Counts(Struct):
    kills: int = 0
    executions: int = 0
    recorded: int = 0
    unrecorded: int = 0  # begun, and no record
    lost: int = 0  # recorded as lost, though the job ended
    wrong: int = 0  # recorded with another end than its own
    repeated: int = 0  # jobs that ran again after they had succeeded
    invented: int = 0  # records of jobs that never began
    lines_missing: int = 0  # in the history file
    lines_twice: int = 0
    left: list[str] = field(default_factory=list)  # files in the spool directory, and control groups

    @property
    def errors(self) -> int:
        facts = (self.unrecorded, self.lost, self.wrong, self.repeated, self.invented)
        return sum(facts) + self.lines_missing + self.lines_twice + len(self.left)

    def add(self, other: "Counts") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class KilledDrivers:
    """One store. `seconds`: between which jobs last."""

    def __init__(self, folder: Path, chance: random.Random, seconds: tuple[float, float]) -> None:
        self._folder = folder
        self._chance = chance
        self._seconds = seconds
        self.kills = self._sets = 0
        self.env = {
            **os.environ,
            **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "STATE", "CONFIG")},
            "JOBLENS_SUPERVISOR_IDLE": "200ms",
        }
        self._store = folder / "data" / "joblens" / "joblens.db"
        self._spool = spool_dir(str(self._store), self.env)

    # ---- kills -----------------------------------------------------------------------------------------

    def kill_workflow(self, kills: int) -> None:
        """Its driver and those who resume it, so often."""
        lines = self._lines()
        jobs = [{"name": name, "command": line} for name, line in lines.items()]
        (self._folder / "flow.json").write_text(json.dumps({"name": "flow", "jobs": jobs}))
        self._call("workflows", "create-from-spec", "flow.json")
        for _ in range(kills):
            self._kill([*JOBLENS, "resume", "1.1", "--max-parallel-jobs", str(AT_ONCE)])
            if self._chance.random() < 0.5:
                self._call("list")
        self._call("resume", "1.1")

    def kill_map(self) -> None:
        (self._folder / "lines").write_text(json.dumps(list(self._lines().values())))
        self._kill([sys.executable, "-c", _MAP.format(at_once=AT_ONCE)])
        self._call("list")

    def _lines(self) -> dict[str, str]:
        self._sets += 1
        names = [f"job-{self._sets}-{number}" for number in range(JOBS)]
        return {name: self._line(name) for name in names}

    def _line(self, name: str) -> str:
        begin, end = (_TRACE.format(word=word, name=name) for word in ("begin", "end"))
        return f"{begin}; sleep {self._chance.uniform(*self._seconds):.3f}; {end}; exit {_exit_code(name)}"

    def _kill(self, command: list[str]) -> None:
        before = len(self._trace())
        process = subprocess.Popen(
            command, cwd=self._folder, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while len(self._trace()) == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(self._chance.uniform(0.0, 0.3))
        if process.poll() is None:
            self.kills += 1
        process.kill()
        process.wait()

    def _call(self, *arguments: str) -> None:
        command = [*JOBLENS, *arguments]
        subprocess.run(command, cwd=self._folder, env=self.env, capture_output=True, timeout=120, check=False)

    def _trace(self) -> list[str]:
        path = self._folder / "trace"
        return path.read_text().splitlines() if path.exists() else []

    # ---- the truth ---------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        wait_until(self._is_quiet, timeout=60, what="the end of all jobs")
        self._call("list")
        records = {record.job.uuid: record for record in self._records()}
        begun = Counter(line.split()[1] for line in self._trace() if line.startswith("begin"))
        ended = {line.split()[1]: line.split()[2] for line in self._trace() if line.startswith("end")}
        succeeded = Counter(name for name in ended.values() if not _exit_code(name))
        mirrored = self._mirrored()
        return Counts(
            kills=self.kills,
            executions=begun.total(),
            recorded=len(records),
            unrecorded=len(begun.keys() - records.keys()),
            lost=sum(records[uuid].status is Status.LOST for uuid in ended if uuid in records),
            wrong=sum(not _is_true(records[uuid], name) for uuid, name in ended.items() if uuid in records),
            repeated=sum(count - 1 for count in (*begun.values(), *succeeded.values())),
            invented=len(records.keys() - begun.keys()),
            lines_missing=len(records.keys() - mirrored.keys()),
            lines_twice=sum(count - 1 for count in mirrored.values()),
            left=self._left(list(records.values())),
        )

    def _is_quiet(self) -> bool:
        """All jobs are over, and the supervisor that looked after some of them has ended."""
        self._call("list")
        is_supervised = SupervisorLock(self._spool).holder() is not None
        return not is_supervised and all(record.status.is_final for record in self._records())

    def _records(self) -> list[Record]:
        store = SqliteStore(str(self._store))
        try:
            return list(store.records(HistoryQuery(limit=100_000)))
        finally:
            store.close()

    def _mirrored(self) -> Counter[str]:
        path = self._store.parent / "jobs_history.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(json.loads(line)["task_id"] for line in lines)

    def _left(self, records: list[Record]) -> list[str]:
        groups = {path for one in records if one.attempt for path in one.attempt.groups.values()}
        spool = Path(self._spool)
        files = [path for path in spool.iterdir() if path.suffix != ".lock"] if spool.exists() else []
        return [*filter(os.path.isdir, groups), *map(str, files)]


def _exit_code(name: str) -> int:
    return 0 if int(name.rsplit("-", 1)[1]) % _FAILS_EVERY else 3


def _is_true(record: Record, name: str) -> bool:
    """How the job ended, and that it was measured."""
    code = _exit_code(name)
    outcome = record.outcome
    return (
        outcome is not None
        and outcome.exit_code == code
        and (record.status is Status.SUCCESS) == (code == 0)
        and bool(outcome.usage.cpu_total_usec)
    )


def fault_run(folder: Path, kills: int, seed: int, at_a_time: int = 3) -> Counts:
    """Half of the kills for workflows and half for maps, of short and of mixed jobs in turn."""
    chance = random.Random(seed)
    total = Counts()
    number = 0
    while total.kills < kills:
        number += 1
        home = folder / str(number)
        home.mkdir()
        drivers = KilledDrivers(home, chance, SHORT_S if number % 2 else MIXED_S)
        drivers.kill_workflow(at_a_time)
        for _ in range(at_a_time):
            drivers.kill_map()
        total.add(drivers.counts())
    return total
