"""Numbers that jobs and workflows have in another store are kept in this one."""

from collections.abc import Sequence

import apsw

from joblens.model.runs.run import Workflow
from joblens.stores.sql.run_facts import workflow_row
from joblens.stores.sqlite.sql import QUERIES


def reserve_jobs(connection: apsw.Connection, jobs: Sequence[tuple[int, str, int]]) -> None:
    """(number, uuid, when it began). Inside a transaction; what the jobs are is written afterwards."""
    connection.executemany(QUERIES["reserve_job"], jobs)
    connection.executemany(QUERIES["reserve_detail"], [(number, uuid) for number, uuid, _ in jobs])


def reserve_workflows(connection: apsw.Connection, workflows: Sequence[Workflow]) -> None:
    rows = [(each.number, *workflow_row(each)) for each in workflows if each.number is not None]
    connection.executemany(QUERIES["reserve_workflow"], rows)
