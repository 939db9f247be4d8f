"""Events as a worker tells them."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from joblens.data.base.op_usage import Usage
from joblens.model.recipes.event import EventType, RecipeEvent
from joblens.model.recipes.recipe import OperatorCall

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
    """What was done for no operator: files cut, rows read, results put together."""
    meta = {"step": step, "resources": usage.as_metadata()}
    return event(EventType.STEP_COMPLETE, duration=round(usage.wall_seconds, 6), metadata=meta, **fields)
