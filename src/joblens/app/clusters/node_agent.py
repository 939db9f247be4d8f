"""Measures the part of a job that runs on this node: `python -m joblens.app.clusters.node_agent ORDER`.

The process that owns the job on its first node (`agent.nodes.job`) sends commands to standard input and
reads results from standard output. The agent exits when its owner is gone.
"""

import contextlib
import os
import select
import sys
import time

import msgspec

from joblens.agent.measuring.accounting import Accountant
from joblens.agent.nodes.measurement import NodeMeasurement
from joblens.agent.nodes.protocol import END, KILL, NodeOrder, NodeReport, TaskDoor, report_lines
from joblens.app.wiring.drivers import SystemClock
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.details import NodePart

_REPORT_EVERY_S = 5.0


def this_node() -> str:
    """Returns the cluster's name of this node."""
    return os.environ.get("JOBLENS_NODE") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename


class NodeAgent:
    def __init__(self, order: NodeOrder) -> None:
        clock = SystemClock()
        self._order = order
        self._node = this_node()
        self._accountant = Accountant(clock, order.cgroup_parent or None)
        self._measurement = NodeMeasurement(order, self._node, clock, self._accountant)
        self._door = TaskDoor(order.uuid, self._node, self._measurement.take)
        self._report_over: EndCause | None = None

    def run(self) -> int:
        has_prolog = bool(self._order.prolog) and os.access(self._order.prolog, os.X_OK)
        self._report(has_prolog=has_prolog)
        next_report_s = time.monotonic() + _REPORT_EVERY_S
        while True:
            command = self._next_command(self._measurement.pause_s)
            if command in (None, END):
                break
            if command == KILL:
                self._measurement.kill()
            over = self._measurement.poll()
            if over is not None and over is not self._report_over:
                self._report_over = over
                self._measurement.kill()
                self._report(over=over, has_prolog=has_prolog)
            elif time.monotonic() >= next_report_s:
                next_report_s = time.monotonic() + _REPORT_EVERY_S
                self._report(has_prolog=has_prolog)
        self._door.close()
        self._report(is_final=True, has_prolog=has_prolog)
        return 0

    def close(self) -> None:
        self._measurement.close()
        self._accountant.close()

    def _next_command(self, wait_s: float) -> str | None:
        """Returns '' if none came; None if the owner is gone."""
        readable, _, _ = select.select([0], [], [], wait_s)
        if not readable:
            return ""
        text = os.read(0, 4096).decode(errors="replace")
        if not text:
            return None
        words = text.split()
        return END if END in words else words[-1] if words else ""

    def _report(
        self,
        *,
        has_prolog: bool = False,
        is_final: bool = False,
        over: EndCause = EndCause.NONE,
    ) -> None:
        door = self._door
        part = self._measurement.part(set(door.ranks), door.taken, list(door.errors), final=is_final)
        _send(NodeReport(part=part, has_prolog=has_prolog, is_final=is_final, over=str(over.value)))


def _send(report: NodeReport) -> None:
    with contextlib.suppress(OSError):  # the reader is gone
        for line in report_lines(report):
            os.write(1, line)


def main(words: list[str]) -> int:
    order = msgspec.json.decode(words[0], type=NodeOrder)
    try:
        agent = NodeAgent(order)
    except Exception as error:  # noqa: BLE001 - the record says so
        _send(NodeReport(part=NodePart(node=this_node(), error=str(error)), is_final=True))
        return 1
    try:
        return agent.run()
    finally:
        agent.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
