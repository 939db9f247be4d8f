"""Adds outcomes to the sums over ended jobs, each process to a shard of its own."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.sql.rollup_sums import EndedJob, sums_of

_Q = encoded_queries("writing.sql")

_SHARDS = 64
_random = int.from_bytes(os.urandom(2))


def _shard() -> int:
    """Hosts count their processes alike, so the number alone would not keep them apart."""
    return (os.getpid() + _random) % _SHARDS


def record_changes(connection: Connection, added: Iterable[EndedJob], removed: Iterable[EndedJob]) -> None:
    """Inside the transaction that writes the outcomes, after the jobs' own rows."""
    removed = list(removed)
    sums, shard = sums_of(added, removed), _shard()
    rollup = [(*key, shard, entry.count, entry.total, entry.largest) for key, entry in sums.items()]
    sketch = [
        (*key, bucket, shard, count)
        for key, entry in sums.items()
        for bucket, count in entry.buckets.items()
        if count
    ]
    if rollup:  # in order, so that two who add to the same wait for each other only in one direction
        columns = _columns(sorted(rollup), 7) + _columns(sorted(sketch), 6)
        connection.execute(_Q["add_sums"], columns)
    for group in sorted({(tool, status) for tool, status, *_ in removed}):
        connection.execute(_Q["lock_rollup"], group)
        connection.execute(_Q["refresh_largest"], group)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True))) if rows else [[] for _ in range(width)]
