"""Positions in streams of events, as the ids of events: `17`, or `2.17` in attempt 2 of a job."""

import re
from typing import Self

from msgspec import Struct

from joblens.model.errors import InputError

POSITION_PATTERN = r"^([0-9]{1,9}\.)?(-1|[0-9]{1,18})$"
_POSITION = re.compile(POSITION_PATTERN)


class Position(Struct, frozen=True):
    """Samples and output start over with each attempt of a job, so an index alone is ambiguous. `attempt` is
    0 for streams without attempts, and in an id without one, which means the current attempt."""

    index: int
    attempt: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InputError."""
        if not _POSITION.fullmatch(text):
            raise InputError(
                f"'{text[:40]}' is no position in a stream",
                hint="send the last `id:` unchanged, such as 2.17",
            )
        attempt, _, index = text.rpartition(".")
        return cls(int(index), int(attempt or 0))

    def __str__(self) -> str:
        return f"{self.attempt}.{self.index}" if self.attempt else str(self.index)
