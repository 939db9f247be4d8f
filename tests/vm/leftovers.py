"""Leftovers in the machine: one process there lists them on request, so that a check costs no login."""

import json
import select
import subprocess
import time
from typing import Any

import pytest

from tests.vm.machine import Machine, MachineError
from tests.vm.situations import install_programs, program_argv

ANSWER_S = 60.0
REST_S = 20.0  # systemd removes scopes and stops managers a moment after the last process


class Inspector:
    """Lists scopes, groups, processes, failed units and spool files in the machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._boots = self._machine.boots
        return self._machine.start("root", "exec " + " ".join(program_argv("inspector")))

    def entries(self) -> set[str]:
        """One line of text per scope, group, process, failed unit or file that joblens made."""
        if self._boots != self._machine.boots:  # hung and started anew
            self.close()
            install_programs(self._machine)
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"list\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
            line = self._process.stdout.readline() if ready else b""
        except BrokenPipeError:
            line = b""
        if not line:
            self._machine.check()
            raise MachineError(f"the inspector in the machine does not answer\n{self._machine.console()}")
        answer: Any = json.loads(line)
        return set(answer)

    def new_entries(self, before: set[str]) -> list[str]:
        """Entries that were not there before and stay; waits a while for them to go."""
        end = time.monotonic() + REST_S
        while True:
            new = sorted(self.entries() - before)
            if not new or time.monotonic() > end:
                return new
            time.sleep(0.3)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def fail_on(new: list[str]) -> None:
    if new:
        pytest.fail("left behind:\n  " + "\n  ".join(new), pytrace=False)
