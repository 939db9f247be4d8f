"""What is known of jobs beside their samples: one row a job, brought up to date in place."""

from collections.abc import Mapping

import apsw
import msgspec

from joblens.model.jobs.details import Details
from joblens.stores.samples.packed_details import repacked
from joblens.stores.sqlite.sql import QUERIES

_encoder = msgspec.json.Encoder()


def write_details(connection: apsw.Connection, news: Mapping[int, Details]) -> None:
    """By number of the job. Called inside a transaction."""
    numbers = _encoder.encode(list(news)).decode()
    known: dict[int, bytes] = dict(connection.execute(QUERIES["details_of"], (numbers,)))
    changed = repacked(known, news)
    grown = [(len(data) - len(known.get(number, b"")), number) for number, data in changed.items()]
    connection.executemany(QUERIES["put_details"], changed.items())
    connection.executemany(QUERIES["add_sample_bytes"], [each for each in grown if each[0]])
