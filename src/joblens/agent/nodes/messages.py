"""What the agents on a job's other nodes are told, and what they tell: lines on the standard streams that a
cluster carries for them. It may break up what is longer than a kilobyte and mix what several nodes say, so
a report goes in pieces, each with the name of its node."""

import msgspec
from msgspec import Struct

from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import Accounting

END, KILL = "end", "kill"  # words to them: measure once more and leave; end what of the job runs there
_MARK = b"joblens-node"
_PIECE = 640
_MOST_PIECES = 4096


class NodeOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """For all of them alike; on a command line, so nothing secret."""

    uuid: str
    memory_bytes: int | None = None  # limits on each node; None: not limited
    cpus: float | None = None
    pids: int | None = None
    interval_s: float = 1.0
    accounting: Accounting = Accounting.AUTO
    probes: tuple[str, ...] | None = None
    cgroup_parent: str = ""
    prolog: str = ""  # a file that tasks on each node are to find


class NodeReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    part: NodePart
    has_prolog: bool = False
    is_final: bool = False
    over: str = ""  # the limit that what runs there has passed: memory-limit, pids-limit


def report_lines(report: NodeReport) -> list[bytes]:
    text = msgspec.json.encode(report)
    pieces = [text[place : place + _PIECE] for place in range(0, len(text), _PIECE)]
    node = report.part.node.encode()
    return [
        b"%s %s %d/%d %s\n" % (_MARK, node, index, len(pieces), piece)
        for index, piece in enumerate(pieces, start=1)
    ]


class ReportReader:
    """Puts reports together again; lines that are none are kept as what else was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._begun: dict[bytes, list[bytes]] = {}

    def feed(self, line: bytes) -> NodeReport | None:
        words = line.rstrip(b"\n").split(b" ", 3)
        if len(words) < 4 or words[0] != _MARK:
            self._keep(line)
            return None
        index, _, count = words[2].partition(b"/")
        if not (index.isdigit() and count.isdigit()) or int(count) > _MOST_PIECES:
            return None
        pieces = self._begun.setdefault(words[1], [])
        if int(index) == 1:
            pieces.clear()
        if int(index) != len(pieces) + 1:
            return None  # of one whose beginning is lost
        pieces.append(words[3])
        if int(index) < int(count):
            return None
        text = b"".join(self._begun.pop(words[1]))
        try:
            return msgspec.json.decode(text, type=NodeReport)
        except msgspec.DecodeError:
            return None

    def _keep(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self.said = [*self.said[-9:], text[:500]]
