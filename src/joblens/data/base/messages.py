"""Messages between coordinator and workers: tasks, results and events as plain values."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from joblens.data.base.op_usage import Usage
from joblens.model.recipes.recipe import EventType, OperatorCall, Partition, RecipeEvent, Slice


class CutFile(Struct, frozen=True, tag="cut"):
    """Splits a file that cannot be read from the middle (compressed, CSV) into pieces in the job's folder."""

    id: str
    number: int  # of the file in the dataset
    whole: Slice


class RunStage(Struct, frozen=True, tag="stage"):
    """Runs the operators of one stage on one partition, from its newest checkpoint."""

    id: str
    partition: Partition
    stage: int
    attempt: int = 0
    may_forget: bool = False  # earlier decisions cover all partitions and will not change


class Decide(Struct, frozen=True, tag="decide"):
    """Lets a global operator choose the rows to keep in all partitions."""

    id: str
    stage: int  # the stage that it closes
    partition_ids: tuple[int, ...]


class Assemble(Struct, frozen=True, tag="assemble"):
    """Joins the exported parts of the partitions at the export path."""

    id: str
    partition_ids: tuple[int, ...]
    keep_parts: bool = True  # more parts will follow


Task = CutFile | RunStage | Decide | Assemble


class Happened(Struct, frozen=True, tag="happened"):
    """An event for the log of a task that is still running."""

    task_id: str
    event: RecipeEvent


class Ended(Struct, frozen=True, tag="ended"):
    task_id: str
    result: dict[str, Any] = {}


class Failed(Struct, frozen=True, tag="failed"):
    """The task failed."""

    task_id: str
    error_type: str
    error_message: str
    stack_trace: str = ""
    is_final: bool = False  # a retry cannot help: bad input, a bad row in a strict job


class Lost(Struct, frozen=True, tag="lost"):
    """The worker is gone: killed, out of memory, its machine lost."""

    task_id: str
    reason: str
    is_out_of_memory: bool = False  # known for certain


Message = Happened | Ended | Failed | Lost


Emit = Callable[[RecipeEvent], None]


def event(kind: EventType, **fields: Any) -> RecipeEvent:
    return RecipeEvent(
        event_type=kind.value,
        timestamp=time.time(),
        process_id=os.getpid(),
        thread_id=threading.get_native_id(),
        **fields,
    )


def op_event(kind: EventType, partition_id: int, call: OperatorCall, **fields: Any) -> RecipeEvent:
    return event(
        kind,
        partition_id=partition_id,
        operation_name=call.name,
        operation_idx=call.index,
        **fields,
    )


def step_event(step: str, usage: Usage, **fields: Any) -> RecipeEvent:
    """Builds an event for work outside operators: splitting, reading, assembling."""
    meta = {"step": step, "resources": usage.as_metadata()}
    return event(EventType.STEP_COMPLETE, duration=round(usage.wall_seconds, 6), metadata=meta, **fields)
