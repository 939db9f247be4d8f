"""`intel_gpu_top -J`: utilization of an Intel GPU as a whole.

The kernel exports it only through counters that this program reads (with permission). It runs as long as a
job uses the device.
"""

import json
import os
import signal
from contextlib import suppress
from typing import Any

from joblens.probes.gpu.drm_sysfs import Card
from joblens.probes.proc.own_tree import HELPERS

_EVERY_MS = 2000
_MISSING = "not in the kernel's files, and intel_gpu_top is not installed"
_KEPT_BYTES = 1 << 20
_READ_SIZE = 1 << 16


class IntelGpuTop:
    """Started by the first `read`.

    If it exits (no permission, no such device) it is not restarted; its last output is the reason.
    """

    def __init__(self, command: str = "intel_gpu_top") -> None:
        self._command = command
        self._running: dict[str, _Running] = {}

    def read(self, card: Card) -> tuple[dict[str, int], str]:
        """Returns output since the last call, as fields of GpuReading, or why there is none."""
        if card.facts.id not in self._running:
            import shutil

            program = shutil.which(self._command)
            if program is None:
                return {}, _MISSING
            self._running[card.facts.id] = _Running(program, card)
        return self._running[card.facts.id].read()

    def close(self) -> None:
        running, self._running = self._running, {}
        for each in running.values():
            each.close()


class _Running:
    def __init__(self, program: str, card: Card) -> None:
        import subprocess  # jobs that leave the GPU alone do not pay for it

        node = next((name for name in sorted(card.nodes) if name.startswith("card")), "card0")
        device = f"drm:/dev/dri/{node}"

        def start() -> int:
            self._process = subprocess.Popen(
                [program, "-J", "-s", str(_EVERY_MS), "-d", device],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            return self._process.pid

        HELPERS.start(start)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output, self._errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        os.set_blocking(self._output, False)
        os.set_blocking(self._errors, False)
        self._text = ""
        self._fields: dict[str, int] = {}
        self._last_output = ""

    def read(self) -> tuple[dict[str, int], str]:
        self._text += _available(self._output)
        self._last_output = (self._last_output + _available(self._errors))[-500:]
        objects, self._text = split_objects(self._text)
        if objects:
            self._fields = parse_gpu_top(objects[-1])
        if self._has_ended():
            last_output = " ".join(self._last_output.split()) or f"exit code {self._process.returncode}"
            return {}, f"intel_gpu_top: {last_output}"
        return self._fields, "" if self._fields else "intel_gpu_top has not answered yet"

    def close(self) -> None:
        if not self._has_ended():
            os.kill(self._process.pid, signal.SIGKILL)  # it keeps nothing that would be lost
            with suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            self._has_ended()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _has_ended(self) -> bool:
        # Not by Popen, which does not return resource usage.
        if self._process.returncode is None:
            self._process.returncode = HELPERS.ended(self._process.pid)
        return self._process.returncode is not None


def split_objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """Returns the complete objects of an endless JSON list, and the rest."""
    decoder = json.JSONDecoder()
    objects: list[dict[str, Any]] = []
    position = 0
    while (start := text.find("{", position)) >= 0:
        try:
            found, position = decoder.raw_decode(text, start)
        except ValueError:
            return objects, text[start:][-_KEPT_BYTES:]
        objects.append(found)
    return objects, ""


def parse_gpu_top(report: dict[str, Any]) -> dict[str, int]:
    """Fields of GpuReading out of one of its objects. As busy as its busiest engine."""
    fields: dict[str, int] = {}
    busy = [float(engine["busy"]) for engine in (report.get("engines") or {}).values() if "busy" in engine]
    if busy:
        fields["utilization"] = min(10_000, round(max(busy) * 100))
    clock = (report.get("frequency") or {}).get("actual")
    if clock is not None:
        fields["sm_clock_mhz"] = round(float(clock))
    power = (report.get("power") or {}).get("GPU")
    if power is not None:
        fields["power_mw"] = round(float(power) * 1000)
    return fields


def _available(descriptor: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, _READ_SIZE)
        except BlockingIOError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode("utf-8", "replace")
