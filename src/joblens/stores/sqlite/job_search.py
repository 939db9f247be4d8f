"""Which job someone means."""

import apsw

from joblens.model.errors import AmbiguousJob
from joblens.model.job import Record
from joblens.model.units import format_instant
from joblens.stores.sqlite.sql import QUERIES

_CANDIDATES_SHOWN = 10
_SHOWN_OF_ID = 8
_LEAST_OF_ID = 4  # a shorter word is a name or a slip, and would fit some id by chance
_HIGHEST = "\U0010ffff"


def matching_numbers(connection: apsw.Connection, ident: str) -> list[int]:
    """What is exact comes before what is a prefix; several when it is a prefix of several, or when it is the
    number of one job and the own id of another."""
    if not ident:
        return []
    lower = ident.lower()
    tries: list[list[tuple[str, tuple[str | int, ...]]]] = [
        [("number_of_uuid", (lower,))],
        [("number_of_external_id", (ident,))],
    ]
    if may_be_prefix(ident):
        tries.append([("numbers_of_prefix", (lower, lower + _HIGHEST, _CANDIDATES_SHOWN + 1))])
    if ident.isascii() and ident.isdigit() and len(ident) < 19:
        tries[1].append(("number_exists", (int(ident),)))
    for equals in tries:
        found = [number for query, given in equals for (number,) in connection.execute(QUERIES[query], given)]
        if found:
            return list(dict.fromkeys(found))
    return []


def may_be_prefix(ident: str) -> bool:
    """A word of digits is a number: ids are random, and one that happens to begin with 2 is not what someone
    meant who typed 2. From eight on it is what lists show of an id."""
    least = _SHOWN_OF_ID if ident.isascii() and ident.isdigit() else _LEAST_OF_ID
    return len(ident) >= least


def newest_named(connection: apsw.Connection, ident: str) -> list[int]:
    return [number for (number,) in connection.execute(QUERIES["newest_named"], (ident,))]


def ambiguous(ident: str, records: list[Record]) -> AmbiguousJob:
    if any(record.job.external_id == ident for record in records):
        first = f"'{ident}' is the id that one job was given and the number of another:"
        hint = "use the UUID, or its beginning"
    else:
        first = f"'{ident}' is the beginning of several job ids:"
        hint = "type more characters of the id"
    return AmbiguousJob("\n".join([first, *_candidates(ident, records)]), hint=hint)


def _candidates(ident: str, records: list[Record]) -> list[str]:
    lines = []
    for record in records[:_CANDIDATES_SHOWN]:
        job, attempt = record.job, record.attempt
        began_at_us = job.created_at_us if attempt is None else attempt.started_at_us
        name = job.name or " ".join(job.argv)[:40]
        how = ""
        if job.external_id == ident:
            how = f"  (its id is '{ident}')"
        elif str(record.number) == ident:
            how = f"  (its number is {ident})"
        lines.append(
            f"  {job.uuid}  {record.status.value:9}  {format_instant(began_at_us)[:19]}  {name}{how}"
        )
    if len(records) > _CANDIDATES_SHOWN:
        lines.append("  … and more")
    return lines
