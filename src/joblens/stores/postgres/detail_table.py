"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from joblens.model.jobs.details import Details
from joblens.model.writes import DetailsTaken
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.samples.packed_details import repacked

_Q = encoded_queries("writing.sql")


def write_details(connection: Connection, news: Mapping[int, Details]) -> dict[int, bytes]:
    """By number of the job, whose row is locked. -> what is in the store then"""
    rows = connection.execute(_Q["details_of"], (list(news),), binary=True).fetchall()
    known: dict[int, bytes] = dict(rows)
    changed = repacked(known, dict(sorted(news.items())))
    if changed:
        connection.execute(_Q["put_details"], (list(changed), list(changed.values())))
    return {**known, **changed}


class Change(NamedTuple):
    """Of one job that runs, by one who knows what was written before."""

    number: int
    fence: int
    md5_before: bytes
    data: bytes


def changes_of(known: Mapping[int, bytes], news: Mapping[int, DetailsTaken]) -> list[Change]:
    """`known`: packed as they were written last, of all jobs of the news at least."""
    changed = repacked(
        {number: known[number] for number in news}, {number: write.details for number, write in news.items()}
    )
    return [
        Change(number, news[number].fence, hashlib.md5(known[number], usedforsecurity=False).digest(), data)
        for number, data in sorted(changed.items())
    ]
