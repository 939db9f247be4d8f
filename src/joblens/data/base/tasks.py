"""What workers are told to do, and what they tell back. Plain values: they travel between processes, and
between machines on a cluster, as msgpack."""

from typing import Any

from msgspec import Struct

from joblens.model.recipes.event import RecipeEvent
from joblens.model.recipes.recipe import Partition, Slice


class CutFile(Struct, frozen=True, tag="cut"):
    """Cut a file that cannot be read from its middle (compressed, CSV) into pieces of the job's folder."""

    id: str
    number: int  # of the file, in the order of the dataset
    whole: Slice


class RunStage(Struct, frozen=True, tag="stage"):
    """Bring one partition through the operators of one stage, from the newest checkpoint there is."""

    id: str
    partition: Partition
    stage: int
    attempt: int = 0
    may_forget: bool = False  # what was decided before is about all partitions: nothing will change it


class Decide(Struct, frozen=True, tag="decide"):
    """Let a global operator say which rows of all partitions stay."""

    id: str
    stage: int  # the one that it closes
    partition_ids: tuple[int, ...]


class Assemble(Struct, frozen=True, tag="assemble"):
    """Put what the partitions exported together at the export path."""

    id: str
    partition_ids: tuple[int, ...]
    keep_parts: bool = True  # others are still to come


Task = CutFile | RunStage | Decide | Assemble


class Happened(Struct, frozen=True, tag="happened"):
    """An event for the log, while the task goes on."""

    task_id: str
    event: RecipeEvent


class Ended(Struct, frozen=True, tag="ended"):
    task_id: str
    result: dict[str, Any] = {}


class Failed(Struct, frozen=True, tag="failed"):
    """The task itself ended in an error."""

    task_id: str
    error_type: str
    error_message: str
    stack_trace: str = ""
    is_final: bool = False  # trying again cannot help: bad input, a bad row in a strict job


class Lost(Struct, frozen=True, tag="lost"):
    """The worker is gone: killed, out of memory, its machine lost."""

    task_id: str
    reason: str
    is_out_of_memory: bool = False  # for certain


Message = Happened | Ended | Failed | Lost
