"""What happens in a worker of a Ray cluster: a task comes in as bytes, messages go out as bytes."""

import functools
import queue
import threading
import traceback
from collections.abc import Callable, Iterator

import msgspec

from joblens.data.base.reasons import encodable, message_of
from joblens.data.base.tasks import Ended, Failed, Happened, Message, Task
from joblens.model.recipes.recipe import RecipePlan

_encode = msgspec.msgpack.Encoder().encode
_task_of = msgspec.msgpack.Decoder(Task).decode
messages_of = msgspec.msgpack.Decoder(list[Message]).decode

Work = Callable[[Task, RecipePlan, Callable[[Happened], None]], Ended | Failed]


def carry(task: bytes, plan: bytes) -> Iterator[bytes]:
    """Packets of messages, the last of which ends with the answer."""
    from joblens.data.partition.work import answer

    yield from packets(task, plan, answer)


def packets(task: bytes, plan: bytes, work: Work) -> Iterator[bytes]:
    """The work has a thread of its own: it calls back for each event, and a generator cannot be called back.
    What has gathered meanwhile goes out together."""
    outgoing: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(
        target=_work, args=(_task_of(task), _plan(plan), work, outgoing.put), daemon=True
    ).start()
    is_answered = False
    while not is_answered:
        packet = [outgoing.get()]
        while not outgoing.empty():
            packet.append(outgoing.get())
        is_answered = not isinstance(packet[-1], Happened)
        yield _encode(packet)


def _work(task: Task, plan: RecipePlan, work: Work, put: Callable[[Message], None]) -> None:
    try:
        put(work(task, plan, put))
    except BaseException as error:  # noqa: BLE001 - told: a thread that ends silently would be waited for
        put(Failed(task.id, type(error).__name__, message_of(error), encodable(traceback.format_exc())))


@functools.lru_cache(maxsize=2)
def _plan(plan: bytes) -> RecipePlan:
    return msgspec.msgpack.decode(plan, type=RecipePlan)
