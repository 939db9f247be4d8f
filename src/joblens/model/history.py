"""Questions to a store about the past, and its answers."""

import enum

from msgspec import Struct, field

from joblens.model.jobs.job import Status

BENCH_TAG = "joblens:bench"  # of runs of `joblens bench`, which lists and statistics leave out


class SortKey(enum.StrEnum):
    STARTED = "started"
    ENDED = "ended"
    DURATION = "duration"
    CPU = "cpu"
    MEMORY = "memory"
    NAME = "name"


class HistoryQuery(Struct, frozen=True, kw_only=True):
    limit: int | None = None
    tools: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    tags: tuple[str, ...] = ()  # 'key=value' or 'word'; all must match
    without_tag: str = ""  # jobs that have it are left out
    names: tuple[str, ...] = ()  # exact, or with * and ?
    since_us: int | None = None  # started at or after
    until_us: int | None = None  # started before
    sort: SortKey = SortKey.STARTED
    ascending: bool = False
    include_unfinished: bool = True
    user: str | None = None
    external_id: str | None = None  # the id that the caller gave them
    run_uuid: str | None = None  # attempts of this run's jobs, and of its actions
    cluster_job: str | None = None  # the cluster's own id of where they ran; of an array: all its elements


class Distribution(Struct, frozen=True, kw_only=True):
    """Of the jobs where the number is known."""

    count: int = 0
    total: float = 0.0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class GroupStatistics(Struct, frozen=True, kw_only=True):
    jobs: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    duration_s: Distribution = Distribution()
    cpu_s: Distribution = Distribution()
    memory_peak_bytes: Distribution = Distribution()

    @property
    def successful(self) -> int:
        return self.by_status.get(Status.SUCCESS, 0)

    @property
    def unsuccessful(self) -> int:
        return self._judged - self.successful

    @property
    def success_percent(self) -> float:
        return 100.0 * self.successful / self._judged if self._judged else 0.0

    @property
    def _judged(self) -> int:
        """Those of which it is known how they ended."""
        return self.jobs - self.by_status.get(Status.MEASURED, 0)


class Statistics(Struct, frozen=True, kw_only=True):
    """Ended jobs only; percentiles are within 1 % of the exact value (docs/format.md)."""

    overall: GroupStatistics = GroupStatistics()
    by_tool: dict[str, GroupStatistics] = field(default_factory=dict)


class TaggedJobs(Struct, frozen=True, kw_only=True):
    """All jobs of one tag."""

    tag: str
    one_of_them: str  # its uuid
    began_at_us: int  # the first of them, or when it was made
    by_status: dict[Status, int]


class PruneReport(Struct, frozen=True, kw_only=True):
    jobs: int = 0
    samples: int = 0
    bytes: int = 0
    uuids: tuple[str, ...] = ()
    kept_bytes: int = 0
    dry_run: bool = False


class StoreCheck(Struct, frozen=True, kw_only=True):
    ok: bool
    schema_version: int
    jobs: int
    sample_blocks: int
    bytes: int
    problems: tuple[str, ...] = ()
    workflows: int = 0
    runs: int = 0
