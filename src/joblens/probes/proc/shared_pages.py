"""How much of a process's memory is its own, where several processes map the same pages.

Processes that forked and did not exec share their parent's anonymous pages until they write to them, and
shared memory belongs to all who map it; adding up what each has resident would count such pages many
times. The kernel's proportional shares add up right but are dear (it walks every page), so they are read
within a budget of time and kept as ratios in between."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from joblens.probes.proc.proc_files import parse_smaps_rollup
from joblens.probes.proc.watched_process import WatchedProcess

_BUDGET_A_READING_NS = 2_000_000
_REST_PER_COST = 50  # a reading that took 1 ms is not repeated for 50 ms: 2 % of one core at the most


class Resident(NamedTuple):
    """What one process has resident, shared pages included."""

    process: WatchedProcess
    origin: int  # equal for processes that forked from one another without exec
    anon_bytes: int
    shmem_bytes: int


class _Share(NamedTuple):
    anon_ratio: float
    shmem_bytes: int
    next_at_ns: int


class SharedPages:
    """`is_lower_bound`: some shares could not be read, so only the largest of a family was counted."""

    def __init__(self) -> None:
        self.is_lower_bound = False
        self._shares: dict[WatchedProcess, _Share] = {}

    def sum_up(self, residents: Iterable[Resident]) -> tuple[int, int]:
        """(anonymous, shared memory) bytes of all of them, each page once."""
        families: dict[int, list[Resident]] = {}
        mappers = []
        anon_bytes = 0
        for resident in residents:
            families.setdefault(resident.origin, []).append(resident)
            if resident.shmem_bytes:
                mappers.append(resident)
        alone = [family[0] for family in families.values() if len(family) == 1]
        anon_bytes += sum(resident.anon_bytes for resident in alone)
        related = [family for family in families.values() if len(family) > 1]
        self._refresh([resident for family in related for resident in family], mappers)
        anon_bytes += sum(self._family_anon(family) for family in related)
        return anon_bytes, self._shmem(mappers)

    def forget(self, process: WatchedProcess) -> None:
        self._shares.pop(process, None)

    def _refresh(self, relatives: list[Resident], mappers: list[Resident]) -> None:
        wanted = {resident.process for resident in relatives}
        if len(mappers) > 1:
            wanted.update(resident.process for resident in mappers)
        started_ns = now_ns = time.monotonic_ns()
        due = [(self._next_at_ns(process), process) for process in wanted]
        for next_at_ns, process in sorted(due, key=lambda pair: pair[0]):
            if next_at_ns > now_ns or now_ns - started_ns > _BUDGET_A_READING_NS:
                return
            before_ns = now_ns
            share = _read_share(process)
            now_ns = time.monotonic_ns()
            if share is not None:
                rest_until_ns = now_ns + _REST_PER_COST * (now_ns - before_ns)
                self._shares[process] = _Share(share[0], share[1], rest_until_ns)

    def _next_at_ns(self, process: WatchedProcess) -> int:
        share = self._shares.get(process)
        return share.next_at_ns if share else 0

    def _family_anon(self, family: list[Resident]) -> int:
        """At least what the largest of them has, whatever the ratios of an earlier moment say."""
        shares = [self._shares.get(resident.process) for resident in family]
        if None in shares:
            self.is_lower_bound = True
        proportional = sum(
            round(resident.anon_bytes * share.anon_ratio)
            for resident, share in zip(family, shares, strict=True)
            if share
        )
        return max(proportional, *(resident.anon_bytes for resident in family))

    def _shmem(self, mappers: list[Resident]) -> int:
        if not mappers:
            return 0
        largest = max(resident.shmem_bytes for resident in mappers)
        if len(mappers) == 1:
            return largest
        shares = [self._shares.get(resident.process) for resident in mappers]
        if None in shares:
            self.is_lower_bound = True
        return max(largest, sum(share.shmem_bytes for share in shares if share))


def _read_share(process: WatchedProcess) -> tuple[float, int] | None:
    try:
        shares = parse_smaps_rollup(process.read_once("smaps_rollup"))
    except OSError:
        return None
    if shares is None:
        return None
    return (shares.pss_anon_bytes / shares.anon_bytes if shares.anon_bytes else 1.0), shares.pss_shmem_bytes
