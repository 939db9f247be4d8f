"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

from collections.abc import Mapping

from joblens.model.details import Details
from joblens.stores.packed_details import repacked
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries

_Q = encoded_queries("writing.sql")


def write_details(connection: Connection, news: Mapping[int, Details]) -> None:
    """By number of the job, whose row is locked."""
    rows = connection.execute(_Q["details_of"], (list(news),), binary=True).fetchall()
    changed = repacked(dict(rows), dict(sorted(news.items())))
    if changed:
        connection.execute(_Q["put_details"], (list(changed), list(changed.values())))
