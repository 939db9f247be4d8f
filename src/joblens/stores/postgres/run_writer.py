"""Writes what is said about workflows and runs. Each fact is known by its UUID, so that one that comes twice
changes nothing; what is about a run may come before the run itself."""

from collections.abc import Iterable, Sequence
from typing import Any

from joblens.model.runs.run import Run
from joblens.model.writes import RunCreated, RunNoted, WorkflowCreated
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.sql.run_facts import event_row, moved, run_row, workflow_row

_Q = encoded_queries("writing.sql")


class RunFacts:
    """Those of one batch. `runs_of_jobs`: further runs whose ids in the store are asked for."""

    def __init__(
        self, writes: Sequence[WorkflowCreated | RunCreated | RunNoted], runs_of_jobs: Iterable[str]
    ) -> None:
        heard_of = set(runs_of_jobs)
        self._workflows: list[dict[str, Any]] = []
        self._runs: list[Run] = []
        self._events: list[tuple[str, str, int, str, bytes]] = []
        for write in writes:
            if isinstance(write, WorkflowCreated):
                names = ("uuid", "name", "user", "source", "detail")
                self._workflows.append(dict(zip(names, workflow_row(write.workflow), strict=True)))
            elif isinstance(write, RunCreated):
                heard_of.add(write.run.uuid)
                self._runs.append(write.run)
            else:
                heard_of.add(write.event.run_uuid)
                self._events.append(event_row(write.event))
        self._heard_of = sorted(heard_of)

    def write(self, connection: Connection) -> dict[str, int]:
        """The ids that the store has for all runs of the batch, by their UUID."""
        runs = self._runs
        if self._workflows:
            connection.execute(_Q["lock_workflows"])
            for row in self._workflows:
                connection.execute(_Q["insert_workflow"], row)
            runs = self._joined_to_known_workflows(connection)
        if not self._heard_of:
            return {}
        ids = self._ids(connection)
        if len(ids) < len(self._heard_of):
            connection.execute(_Q["hear_of_runs"], ([uuid for uuid in self._heard_of if uuid not in ids],))
            ids = self._ids(connection)
        touched = {run.uuid for run in runs} | {event[1] for event in self._events}
        if touched:
            connection.execute(_Q["lock_runs"], ([ids[uuid] for uuid in touched],))
        for run in runs:
            uuid, workflow, detail, spec = run_row(run)
            values = {"uuid": uuid, "workflow": workflow, "detail": detail, "spec": spec}
            connection.execute(_Q["describe_run"], values)
        if self._events:
            rows = [(uuid, ids[run], *rest) for uuid, run, *rest in self._events]
            connection.execute(_Q["insert_run_events"], list(map(list, zip(*rows, strict=True))))
        return ids

    def _joined_to_known_workflows(self, connection: Connection) -> list[Run]:
        """Runs of a workflow that somebody else has made of the same file meanwhile are runs of that one."""
        instead: dict[str, str] = {}
        for row in self._workflows:
            for (known,) in connection.execute(_Q["workflow_instead_of"], row).fetchall():
                instead[row["uuid"]] = str(known)
        return moved(self._runs, instead)

    def _ids(self, connection: Connection) -> dict[str, int]:
        return dict(connection.execute(_Q["ids_of_runs"], (self._heard_of,)))
