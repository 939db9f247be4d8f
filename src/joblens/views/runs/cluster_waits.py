"""Reasons why jobs wait at a cluster, as text."""

from collections.abc import Mapping, Sequence

from joblens.engine.progress.allocations import JobAllocation

_SHOWN = 3


def describe_wait(allocation: JobAllocation) -> str:
    what = allocation.engine
    if allocation.job_id:
        what += f" {'allocation' if allocation.is_shared else 'job'} {allocation.job_id}"
    return f"waits at {what}: {allocation.why}" if allocation.why else f"waits at {what}"


class WaitReasons:
    """Reports each new reason why jobs wait once, not once per job."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._shown: set[str] = set()
        self._is_last = False  # the last message was that jobs wait

    def lines(self, whys: Mapping[str, str]) -> list[str]:
        ids_of: dict[str, list[str]] = {}
        for job_id, why in whys.items():
            if why not in self._shown:
                ids_of.setdefault(why, []).append(job_id)
        self._shown |= ids_of.keys()
        self._is_last |= bool(ids_of)
        return [
            f"{'waits' if len(ids) == 1 else 'wait'} at {self._engine} {_listed(ids)}: {why}"
            for why, ids in ids_of.items()
        ]

    def nothing_waits(self) -> list[str]:
        """Returns a message, once after reasons, so that the last reason does not seem to be current."""
        was_last, self._is_last = self._is_last, False
        return [f"nothing waits at {self._engine} now"] if was_last else []


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_SHOWN])
    return f"job {shown}" if len(ids) == 1 else f"jobs {shown}{', …' if len(ids) > _SHOWN else ''}"
