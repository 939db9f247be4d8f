"""Queries for jobs of the past, and their results: pages, statistics, notes, deleted jobs."""

import enum

from msgspec import Struct, field

from joblens.model.jobs.job import Record, Status

BENCH_TAG = "joblens:bench"  # of runs of `joblens bench`, excluded from lists and statistics


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
    without_tag: str = ""  # jobs with it are excluded
    names: tuple[str, ...] = ()  # exact, or with * and ?
    since_us: int | None = None  # started at or after
    until_us: int | None = None  # started before
    sort: SortKey = SortKey.STARTED
    ascending: bool = False
    include_unfinished: bool = True
    user: str | None = None
    external_id: str | None = None  # own id, given by the caller
    run_uuid: str | None = None  # attempts of this run's jobs, and of its actions
    cluster_job: str | None = None  # id at the cluster; of an array: all its elements
    name_contains: str = ""  # case-sensitive
    hosts: tuple[str, ...] = ()  # where their last attempt started; any of them
    findings: tuple[str, ...] = ()  # codes; any of them
    after: str | None = None  # a cursor (model.cursor): jobs after that position of the list


# Findings of jobs that reached a limit: the filter "over limit" of lists.
OVER_LIMIT = ("out-of-memory", "child-out-of-memory", "timed-out", "pids-limit", "cpu-throttled")


class Page(Struct, frozen=True, kw_only=True):
    """Page of a list of jobs."""

    records: tuple[Record, ...]
    next: str | None = None  # cursor for `HistoryQuery.after`; None: this is the last page


class Annotation(Struct, frozen=True, kw_only=True):
    """A note that a user attached to a job."""

    uuid: str
    job_uuid: str
    at_us: int
    author: str
    text: str


class Tombstone(Struct, frozen=True, kw_only=True):
    """A job that was deleted."""

    uuid: str
    number: int
    external_id: str | None
    name: str
    user: str
    status: Status
    deleted_at_us: int
    deleted_by: str


class Distribution(Struct, frozen=True, kw_only=True):
    """Distribution of a number over the jobs for which it is known."""

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
        return self.judged - self.successful

    @property
    def success_percent(self) -> float:
        return 100.0 * self.successful / self.judged if self.judged else 0.0

    @property
    def judged(self) -> int:
        """Returns jobs with a known outcome: of a measured one it is unknown."""
        return self.jobs - self.by_status.get(Status.MEASURED, 0)


class Statistics(Struct, frozen=True, kw_only=True):
    """Ended jobs only; percentiles are within 1 % of the exact value (docs/format.md)."""

    overall: GroupStatistics = GroupStatistics()
    by_tool: dict[str, GroupStatistics] = field(default_factory=dict)


class TaggedJobs(Struct, frozen=True, kw_only=True):
    """All jobs of one tag."""

    tag: str
    one_of_them: str  # uuid
    began_at_us: int  # start of the first, or its creation
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
