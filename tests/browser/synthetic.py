"""Jobs that no process runs: their samples and output are written as a test wants."""

import re
import time
from pathlib import Path
from typing import Any

from joblens.model.jobs.job import Status
from joblens.model.jobs.sample import Sample
from joblens.model.writes import SamplesTaken, Write
from tests.builders.writes import SECOND, ended, queued, started
from tests.integration.served import Served

MIB = 1 << 20
# Markup, right-to-left override, terminal sequences, and length.
HOSTILE = "<img src=x onerror='window.hacked=1'>\u202egpj.exe \x1b[31mred\x1b]0;t\x07 &amp; " + "long" * 50
SHOWN = re.sub("[\u202e\x1b\x07]", "\ufffd", HOSTILE)


class SyntheticJob:
    """A running job that started `age_s` seconds ago."""

    def __init__(
        self,
        server: Served,
        *,
        age_s: float = 0,
        logs: Path | None = None,
        is_written: bool = True,
        **fields: Any,
    ) -> None:
        self._server = server
        self.began_us = time.time_ns() // 1000 - round(age_s * SECOND)
        self.count = 0
        made = queued(at_us=self.began_us, **fields)
        self.uuid = made.job.uuid
        self.logs = logs
        where = {} if logs is None else {"logs_dir": str(logs)}
        if logs is not None:
            logs.mkdir()
            for name in ("stdout.log", "stderr.log"):
                (logs / name).touch()
        self.start: tuple[Write, ...] = (made, started(self.uuid, at_us=self.began_us, **where))
        if is_written:
            server.apply(*self.start)

    @classmethod
    def many(cls, server: Served, count: int, **fields: Any) -> "list[SyntheticJob]":
        """Jobs 'many 0' to 'many 999', written at once."""
        jobs = [cls(server, is_written=False, name=f"many {number}", **fields) for number in range(count)]
        server.apply(*(write for job in jobs for write in job.start))
        return jobs

    def take(self, count: int, interval_us: int = SECOND, **fields: Any) -> None:
        """Adds samples."""
        self._server.apply(self.samples(count, interval_us, **fields))

    def samples(self, count: int, interval_us: int = SECOND, **fields: Any) -> Write:
        first, self.count = self.count, self.count + count
        return SamplesTaken(
            self.uuid,
            first,
            tuple(self._sample(index, interval_us, fields) for index in range(first, self.count)),
        )

    def _sample(self, index: int, interval_us: int, fields: dict[str, Any]) -> Sample:
        elapsed_us = (index + 1) * interval_us
        return Sample(
            at_us=self.began_us + elapsed_us,
            elapsed_us=elapsed_us,
            **{
                "cpu_total_usec": elapsed_us // 2,
                "memory_anon_bytes": (20 + index % 7) * MIB,
                "memory_file_bytes": 9 * MIB,
                "memory_shmem_bytes": MIB,
                "memory_kernel_bytes": MIB,
                "io_read_bytes": index * MIB,
                "processes": 1 + index % 3,
                "threads": 2 + index % 3,
                **fields,
            },
        )

    def print(self, text: str, stream: str = "stdout") -> None:
        assert self.logs is not None
        with open(self.logs / f"{stream}.log", "a", encoding="utf-8") as file:
            file.write(text)

    def end(self, status: Status = Status.SUCCESS, **fields: Any) -> None:
        duration_s = max(1.0, float(self.count))
        at_us = self.began_us + round(duration_s * SECOND)
        self._server.apply(ended(self.uuid, status, at_us=at_us, duration_s=duration_s, **fields))
