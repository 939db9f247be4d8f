"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

from collections.abc import Mapping

from joblens.model.details import Details
from joblens.stores.packed_details import pack_details, readable_details
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries

_Q = encoded_queries("writing.sql")


def write_details(connection: Connection, news: Mapping[int, Details]) -> None:
    """By number of the job, whose row is locked."""
    rows = connection.execute(_Q["details_of"], (list(news),), binary=True).fetchall()
    known: dict[int, bytes] = dict(rows)
    changed: dict[int, bytes] = {}
    for number, details in sorted(news.items()):
        before = known.get(number, b"")
        data = pack_details(readable_details(before).updated(details))
        if data != before:
            changed[number] = data
    if changed:
        connection.execute(_Q["put_details"], (list(changed), list(changed.values())))
