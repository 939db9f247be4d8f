"""A job's samples as plain dicts, or as an Arrow table."""

from typing import Any

from msgspec import structs

from joblens.model.jobs.sample import SAMPLE_COLUMNS, SAMPLE_TABLES, Sample
from joblens.ports.store import Store


class Samples(list[dict[str, Any]]):
    """One dict a sample in time order, every field of docs/metrics.md by name; None: could not be known."""

    @classmethod
    def of(cls, store: Store, ident: str) -> "Samples":
        uuid = store.find(ident).job.uuid
        return cls({"index": index, **_plain(sample)} for index, sample in store.samples(uuid))

    def to_arrow(self) -> Any:
        """A pyarrow.Table with one int64 column a field, and `at`, a timestamp; tables by device are not in.
        Needs the `data` extra."""
        from joblens.stores.sinks.arrow_table import integer_table

        return integer_table(self, ("index", *SAMPLE_COLUMNS), {"at": "at_us"})


def _plain(sample: Sample) -> dict[str, Any]:
    row = structs.asdict(sample)
    for name in SAMPLE_TABLES:
        if row[name] is not None:
            row[name] = {entry: structs.asdict(numbers) for entry, numbers in row[name].items()}
    return row
