"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

from collections.abc import Mapping

import apsw
import msgspec

from joblens.model.details import Details
from joblens.stores.packed_details import pack_details, readable_details
from joblens.stores.sqlite.sql import QUERIES

_encoder = msgspec.json.Encoder()


def write_details(connection: apsw.Connection, news: Mapping[int, Details]) -> None:
    """By number of the job. Called inside a transaction."""
    numbers = _encoder.encode(list(news)).decode()
    known: dict[int, bytes] = dict(connection.execute(QUERIES["details_of"], (numbers,)))
    rows: list[tuple[int, bytes]] = []
    grown: list[tuple[int, int]] = []
    for number, details in news.items():
        before = known.get(number, b"")
        data = pack_details(readable_details(before).updated(details))
        if data != before:
            rows.append((number, data))
            grown.append((len(data) - len(before), number))
    connection.executemany(QUERIES["put_details"], rows)
    connection.executemany(QUERIES["add_sample_bytes"], [each for each in grown if each[0]])
