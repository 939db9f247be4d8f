"""ports.deliveries.Deliveries of the store in one SQLite file."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import apsw

from joblens.model.delivery import Backlog, Claim, Holding, Renewal, WorkerInfo
from joblens.model.job import Status
from joblens.stores.sqlite.store_clock import now_us
from joblens.stores.sqlite.transactions import reading


class TicketDesk:
    """The half of SqliteStore that workers ask. What it needs is imported when it is asked for."""

    _level: int

    def _use(self) -> AbstractContextManager[apsw.Connection]:
        raise NotImplementedError

    def _change(self, *, for_good: bool) -> AbstractContextManager[apsw.Connection]:
        """A transaction that writes; `for_good`: on disk before it ends."""
        raise NotImplementedError

    def claim(self, worker: WorkerInfo, uuids: Sequence[str], lease_s: float) -> list[Claim]:
        from joblens.stores.sqlite.ticket_claims import claim_those

        if not uuids:
            return []
        with self._change(for_good=False) as connection:
            return claim_those(connection, worker, uuids, lease_s, self._level)

    def claim_waiting(
        self, worker: WorkerInfo, most: int, lease_s: float, *, older_than_s: float = 0.0
    ) -> list[Claim]:
        from joblens.stores.sqlite.ticket_claims import any_waiting, claim_oldest

        if most <= 0:
            return []
        with self._use() as connection:
            if not any_waiting(connection, worker, older_than_s):
                return []  # the usual case, and it need not wait for those who write
        with self._change(for_good=False) as connection:
            return claim_oldest(connection, worker, most, lease_s, older_than_s, self._level)

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        from joblens.stores.sqlite.ticket_claims import renew

        with self._change(for_good=False) as connection:
            return renew(connection, worker, held, lease_s)

    def give_back(self, worker: str, held: Mapping[str, int]) -> None:
        from joblens.stores.sqlite.ticket_returns import give_back

        if held:
            with self._change(for_good=False) as connection:
                give_back(connection, worker, held, self._level)

    def holdings(self) -> list[Holding]:
        from joblens.stores.sqlite.ticket_claims import holdings

        with self._use() as connection:
            return holdings(connection)

    def take_back(self, uuid: str, fence: int) -> Status:
        from joblens.stores.sqlite.ticket_returns import take_back

        with self._change(for_good=True) as connection:
            return take_back(connection, uuid, fence, self._level)

    def release_after(self, uuid: str) -> list[tuple[str, str]]:
        from joblens.stores.sqlite.ticket_returns import release_after

        with self._change(for_good=True) as connection:
            return release_after(connection, uuid, self._level)

    def withdraw(self, uuid: str) -> bool:
        from joblens.stores.sqlite.ticket_returns import withdraw

        with self._change(for_good=True) as connection:
            return withdraw(connection, uuid, self._level)

    def workers(self) -> list[WorkerInfo]:
        from joblens.stores.sqlite.ticket_tables import workers

        with self._use() as connection:
            return workers(connection)

    def forget_worker(self, name: str) -> None:
        from joblens.stores.sqlite.sql import TICKET_QUERIES

        with self._change(for_good=False) as connection:
            connection.execute(TICKET_QUERIES["forget_worker"], (name,))

    def backlog(self) -> list[Backlog]:
        from joblens.stores.sqlite.ticket_tables import backlog

        with self._use() as connection:
            return backlog(connection)

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        from joblens.stores.sqlite.ticket_tables import states

        with self._use() as connection, reading(connection):
            return states(connection, uuids)

    def now_us(self) -> int:
        return now_us()
