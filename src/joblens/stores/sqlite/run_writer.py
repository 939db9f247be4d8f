"""Writes what is said about workflows and runs. Each fact is known by its UUID, so that one that comes twice
changes nothing; what is about a run may come before the run itself."""

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from joblens.model.runs.run import Run
from joblens.model.writes import RunCreated, RunNoted, WorkflowCreated
from joblens.stores.sql.run_facts import event_row, moved, run_row, workflow_row
from joblens.stores.sqlite.sql import QUERIES

_json = msgspec.json.Encoder()


class RunFacts:
    """Those of one batch, turned into bytes before the write lock is taken. `runs_of_jobs`: further runs
    whose ids in the store are asked for."""

    def __init__(
        self, writes: Sequence[WorkflowCreated | RunCreated | RunNoted], runs_of_jobs: Iterable[str]
    ) -> None:
        self.has_facts = bool(writes)
        self._heard_of = set(runs_of_jobs)
        self._workflows: list[tuple[str | bytes, ...]] = []
        self._runs: list[Run] = []
        self._run_rows: list[tuple[str | bytes, ...]] = []
        self._events: list[tuple[str, str, int, str, bytes]] = []
        for write in writes:
            if isinstance(write, WorkflowCreated):
                self._workflows.append(workflow_row(write.workflow))
            elif isinstance(write, RunCreated):
                self._heard_of.add(write.run.uuid)
                self._runs.append(write.run)
                self._run_rows.append(run_row(write.run))
            else:
                self._heard_of.add(write.event.run_uuid)
                self._events.append(event_row(write.event))

    def write(self, connection: apsw.Connection) -> dict[str, int]:
        """The ids that the store has for all runs of the batch, by their UUID."""
        if not self._heard_of and not self._workflows:
            return {}
        connection.executemany(QUERIES["insert_workflow"], self._workflows)
        self._join_known_workflows(connection)
        ids = self._ids(connection)
        missing = [(uuid,) for uuid in self._heard_of if uuid not in ids]
        if missing:
            connection.executemany(QUERIES["hear_of_run"], missing)
            ids = self._ids(connection)
        connection.executemany(QUERIES["describe_run"], self._run_rows)
        connection.executemany(
            QUERIES["insert_run_event"], [(uuid, ids[run], *rest) for uuid, run, *rest in self._events]
        )
        return ids

    def _join_known_workflows(self, connection: apsw.Connection) -> None:
        """Runs of a workflow that somebody else has made of the same file meanwhile are runs of that one."""
        instead: dict[str, str] = {}
        for uuid, name, user, source, _ in self._workflows:
            for (known,) in connection.execute(
                QUERIES["workflow_instead_of"], (uuid, source, name, user)
            ).fetchall():
                instead[str(uuid)] = str(known)
        if instead:
            self._run_rows = [run_row(run) for run in moved(self._runs, instead)]

    def _ids(self, connection: apsw.Connection) -> dict[str, int]:
        wanted = _json.encode(list(self._heard_of)).decode()
        return dict(connection.execute(QUERIES["ids_of_runs"], (wanted,)))
