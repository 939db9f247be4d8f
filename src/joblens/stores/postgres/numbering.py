"""Numbers that jobs and workflows have in another store are kept in this one."""

from collections.abc import Sequence

from joblens.model.runs.run import Workflow
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import queries_of
from joblens.stores.sql.run_facts import workflow_row


def reserve_jobs(connection: Connection, jobs: Sequence[tuple[int, str, int]]) -> None:
    """(number, uuid, when it began). Inside a transaction; what the jobs are is written afterwards."""
    queries = queries_of("numbering.sql")
    columns = [list(column) for column in zip(*jobs, strict=True)]
    connection.execute(queries["reserve_jobs"].encode(), columns)
    connection.execute(queries["next_job"].encode())


def reserve_workflows(connection: Connection, workflows: Sequence[Workflow]) -> None:
    queries = queries_of("numbering.sql")
    for each in workflows:
        if each.number is not None:
            connection.execute(queries["reserve_workflow"].encode(), (each.number, *workflow_row(each)))
    connection.execute(queries["next_workflow"].encode())
