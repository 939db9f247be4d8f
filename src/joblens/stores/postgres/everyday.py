"""What running jobs write all the time, in one statement that is a transaction of its own."""

from collections.abc import Sequence

from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.detail_table import Change
from joblens.stores.postgres.sample_tables import Piece, columns_of
from joblens.stores.postgres.sql import encoded_queries

_Q = encoded_queries("writing.sql")


def take_news(
    database: Database, pieces: Sequence[Piece], changes: Sequence[Change]
) -> tuple[list[int], set[int]]:
    """Samples, and details without asking what is there: where it is not what is thought, nothing happens.
    -> which of the jobs with samples have ended, the numbers of those whose details were written"""
    if not pieces and not changes:
        return [], set()
    names = ("detail_ids", "detail_fences", "md5s", "details")
    columns = map(list, zip(*changes, strict=True)) if changes else ([] for _ in names)
    values = {**columns_of(pieces), **dict(zip(names, columns, strict=True))}

    def ask(connection: Connection) -> list[tuple[int, bool]]:
        return connection.execute(_Q["take_news"], values).fetchall()

    rows = database.at_once(ask)
    ended = list(dict.fromkeys(number for number, is_detail in rows if not is_detail))
    return ended, {number for number, is_detail in rows if is_detail}
