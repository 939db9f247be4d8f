"""Search for jobs to claim, decided purely. Announced jobs and polls of the store alternate, so that jobs
whose message was lost are found however many are announced."""

from collections import deque
from collections.abc import Collection, Container

from msgspec import Struct

from joblens.engine.life.claim_events import Ack, ClaimRequest, Command, LetGo, Message
from joblens.engine.life.worker_capacity import WorkerCapacity

_MOST_AT_ONCE = 64  # jobs per request
_MOST_DEFERRED = 1000
_STORE_TIMEOUT_S = 60.0  # a store that does not answer for longer no longer delays the end of a worker
_POLL_ALONE_S = 1.0  # without a broker


class SearchPlan(Struct, frozen=True):
    poll_s: float
    lease_s: float
    takes_any: bool = False  # also jobs that need more memory or GPUs than the worker has


class ClaimSearch:
    def __init__(self, plan: SearchPlan, now_s: float) -> None:
        self._plan = plan
        self._messages: deque[Message] = deque()
        # Acknowledged jobs that did not fit: requested again when capacity is free.
        self._deferred: deque[str] = deque(maxlen=_MOST_DEFERRED)
        self._is_poll_wanted = False
        self._was_message_last = False
        self._has_broker = False
        self._answered_at_s = now_s
        self.is_asking = False
        self.next_poll_s = 0.0
        self.idle_since_s = now_s

    @property
    def has_announcements(self) -> bool:
        return bool(self._messages or self._deferred)

    def add(self, message: Message) -> None:
        self._messages.append(message)

    def forget(self, uuid: str) -> bool:
        """Returns whether it was announced."""
        before = len(self._messages) + len(self._deferred)
        self._messages = deque(one for one in self._messages if one.uuid != uuid)
        self._deferred = deque((one for one in self._deferred if one != uuid), maxlen=_MOST_DEFERRED)
        return len(self._messages) + len(self._deferred) < before

    def clear(self) -> tuple[str, ...]:
        """Returns the announced messages. Without an ack, the broker delivers them to other workers."""
        uuids = (*(one.uuid for one in self._messages), *self._deferred)
        self._messages.clear()
        self._deferred.clear()
        return uuids

    def set_broker(self, *, is_connected: bool) -> None:
        self._has_broker = is_connected
        if not is_connected:
            self.poll_soon()

    def poll_soon(self) -> None:
        self._is_poll_wanted = True
        self.next_poll_s = 0.0

    def poll_if_due(self, now_s: float) -> None:
        if now_s >= self.next_poll_s:
            self.next_poll_s = now_s + (self._plan.poll_s if self._has_broker else _POLL_ALONE_S)
            self._is_poll_wanted = True

    def capacity_freed(self) -> None:
        while self._deferred:
            self._messages.append(Message(self._deferred.popleft(), _nothing))
        if not self._plan.takes_any and not self._has_broker:
            self._is_poll_wanted = True  # for jobs that fit now

    # ---- requests --------------------------------------------------------------------------------------

    def next_request(
        self, unstarted: int, capacity: WorkerCapacity, claimed: Container[str], now_s: float
    ) -> ClaimRequest | None:
        """`unstarted`: claimed jobs that still wait for capacity."""
        limit = min(_MOST_AT_ONCE, capacity.claim_limit - unstarted)
        if self.is_asking or limit <= 0:
            return None
        if self._is_poll_wanted and (self._was_message_last or not self._messages):
            return self._poll(limit, capacity, now_s)
        return self._announced(limit, capacity, claimed, now_s) if self._messages else None

    def _poll(self, limit: int, capacity: WorkerCapacity, now_s: float) -> ClaimRequest:
        self.is_asking = True
        self._is_poll_wanted = self._was_message_last = False
        is_any = self._plan.takes_any
        return ClaimRequest(
            limit=limit,
            older_than_s=min(self._plan.poll_s, self._plan.lease_s) if self._has_broker else 0.0,
            free=None if is_any else capacity.free_now(now_s),
            total=None if is_any else capacity.total(now_s),
        )

    def _announced(
        self, limit: int, capacity: WorkerCapacity, claimed: Container[str], now_s: float
    ) -> ClaimRequest:
        self.is_asking = self._was_message_last = True
        messages = tuple(self._messages.popleft() for _ in range(min(limit, len(self._messages))))
        return ClaimRequest(
            limit=limit,
            messages=messages,
            uuids=tuple(one.uuid for one in messages if one.uuid not in claimed),
            free=None if self._plan.takes_any else capacity.free_now(now_s),
        )

    def answered(
        self, request: ClaimRequest, granted: Collection[str], *, is_busy: bool, now_s: float
    ) -> list[Command]:
        """`is_busy`: running jobs will free capacity."""
        self.is_asking = False
        if not request.messages:
            self._answered_at_s = now_s
            self._is_poll_wanted |= len(granted) >= request.limit
            return []
        commands: list[Command] = []
        missing = tuple(uuid for uuid in request.uuids if uuid not in granted)
        if missing and request.free is not None and is_busy:
            self._deferred.extend(missing)
        elif missing:
            commands.append(LetGo(missing))
        return [*commands, *map(Ack, request.messages)]

    def failed(self, request: ClaimRequest, withdrawn: Container[str], now_s: float) -> None:
        """The worker is not idle, because the store may have jobs, unless the store is gone permanently."""
        self.is_asking = False
        self._messages.extendleft(one for one in reversed(request.messages) if one.uuid not in withdrawn)
        if not request.messages and now_s - self._answered_at_s < _STORE_TIMEOUT_S:
            self.idle_since_s = now_s


def _nothing() -> None:
    """Replaces the ack of a message that is already acknowledged."""
