"""What is said at the socket of a worker that stays on a node, one JSON value on a line.

Who speaks is whatever the cluster lets begin there: it brings room for jobs and names them, waits for their
ends, and takes the room away again, at the latest when its connection breaks."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Placement

_NEWLINE = b"\n"


class Bring(Struct, frozen=True, tag="bring", omit_defaults=True):
    """Jobs, and the room in which they run one behind the other."""

    group: int  # of this connection
    uuids: tuple[str, ...]
    places: int = 1
    gpus: tuple[str, ...] | None = None  # devices by name; None: the cluster gives none
    placement: Placement | None = None
    doors: NodeDoors | None = None  # to the other nodes of a job that has several


class Leave(Struct, frozen=True, tag="leave"):
    """Those of the group that have not ended are to be given back, its room is gone."""

    group: int


class Ran(Struct, frozen=True, tag="ran", omit_defaults=True):
    """It has come to its end, and needs its room no more; what is to be written of it is under way."""

    uuid: str
    seconds: float | None = None


class Ended(Struct, frozen=True, tag="ended"):
    """Their outcomes are in the store."""

    uuids: tuple[str, ...]


class LetGo(Struct, frozen=True, tag="let_go"):
    """The worker does not have them (any more)."""

    uuids: tuple[str, ...]


class PrintsTo(Struct, frozen=True, tag="prints"):
    """Into a folder of the node, where the folder that was meant cannot be reached."""

    uuid: str
    here: str
    meant: str


ToNode = Bring | Leave
FromNode = Ran | Ended | LetGo | PrintsTo

_to_node: msgspec.json.Decoder[ToNode] = msgspec.json.Decoder(ToNode)
_from_node: msgspec.json.Decoder[FromNode] = msgspec.json.Decoder(FromNode)


def line_of(word: ToNode | FromNode) -> bytes:
    return msgspec.json.encode(word) + _NEWLINE


def read_to_node(line: bytes) -> ToNode:
    return _to_node.decode(line)


def read_from_node(line: bytes) -> FromNode:
    return _from_node.decode(line)


class Lines:
    """Whole lines out of what comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + data).split(_NEWLINE)
        yield from lines
