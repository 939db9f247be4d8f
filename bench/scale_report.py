"""Report of `bench.scale`: lines to read, and figures with goals."""

from collections.abc import Callable, Iterator
from statistics import median

from msgspec import Struct

from bench.goals import Figure
from bench.scale_agents import Counts
from bench.scale_readers import Reads


class Cost(Struct):
    """Resources and work of the servers so far."""

    server_cpu_s: float
    pooler_cpu_s: float
    commits: int
    wal_bytes: int
    at_s: float


class Outcome(Struct):
    counts: list[Counts]
    reads: Reads
    day: tuple[float, int]  # seconds that statistics over a day took, and how many jobs they were about
    before: Cost
    after: Cost
    sizes: dict[str, tuple[int, int]]  # bytes and rows that this run added to each table
    waiting: int  # unclaimed jobs at the end
    stored: int  # samples
    stored_bytes: int
    server_connections: int
    client_connections: int
    server_memory_bytes: int

    @property
    def seconds(self) -> float:
        return self.after.at_s - self.before.at_s

    @property
    def lags_s(self) -> list[float]:
        return [lag for each in self.counts for lag in each.lags_s]

    def rate(self, of: Callable[[Counts], float]) -> float:
        return self.total(of) / self.seconds

    def total(self, of: Callable[[Counts], float]) -> float:
        return sum(of(each) for each in self.counts)

    def used(self, of: Callable[[Cost], float]) -> float:
        """A second."""
        return (of(self.after) - of(self.before)) / self.seconds


class Setting(Struct):
    agents: int
    past_jobs: int
    sample_every_s: float
    way: str


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def _ms(values: list[float]) -> str:
    if not values:
        return "none"
    return f"{median(values) * 1000:.1f} ms median, p99 {percentile(values, 0.99) * 1000:.0f} ms"


def report(setting: Setting, found: Outcome, rest: dict[str, float]) -> str:
    """Prints the report. `rest`: bytes per job in each table, after it has ended."""
    lines = [*_flow(setting, found), *_costs(found), *_reading(found), *_tables(found)]
    at_rest = ", ".join(f"{table} {size:.0f}" for table, size in rest.items())
    return "\n".join(["", *lines, f"  at rest       {sum(rest.values()):.0f} bytes/job: {at_rest}", ""])


def _flow(setting: Setting, found: Outcome) -> Iterator[str]:
    yield f"{setting.agents:,} agents, {setting.past_jobs:,} past jobs, {found.seconds:.0f} s, {setting.way}"
    due = setting.agents / setting.sample_every_s
    ended = found.rate(lambda one: one.jobs_ended)
    yield f"  samples       {found.rate(lambda one: one.samples):.1f}/s, {due:.1f}/s while all run"
    yield f"  jobs          {ended:.2f} end per second, {ended * 86_400:,.0f} per day; {found.waiting} wait"
    longest = max(found.lags_s, default=0.0) * 1000
    yield f"  lag           {_ms(found.lags_s)}, longest {longest:.0f} ms"
    late, overdue = found.total(lambda one: one.late), found.total(lambda one: one.overdue)
    failures = found.total(lambda one: one.failures)
    last = next((f": {one.last_error}" for one in found.counts if one.last_error), "")
    yield f"  behind        {late:.0f} samples late, {overdue:.0f} overdue, {failures:.0f} failed{last}"


def _costs(found: Outcome) -> Iterator[str]:
    commits, log = found.used(lambda cost: cost.commits), found.used(lambda cost: cost.wal_bytes)
    server, pooler = found.used(lambda cost: cost.server_cpu_s), found.used(lambda cost: cost.pooler_cpu_s)
    ended = max(1e-9, found.rate(lambda one: one.jobs_ended))
    yield f"  asked         {found.rate(lambda one: one.calls):.0f} duties of agents per second"
    yield f"  transactions  {commits:.0f}/s, {server / max(1e-9, commits) * 1e6:.0f} µs of CPU each"
    yield f"  log           {log / 1e6:.2f} MB/s, {log / ended:,.0f} bytes/job"
    players = found.rate(lambda one: one.cpu_s)
    yield f"  CPU           {server:.2f} cores PostgreSQL, {pooler:.2f} PgBouncer, {players:.2f} the agents"
    yield f"  per job       {server / ended * 1e3:.1f} ms of PostgreSQL's CPU, including readers"
    memory = found.server_memory_bytes / 2**20
    yield (
        f"  connections   {found.client_connections:,} of clients, {found.server_connections} of the server, "
        f"which has {memory:,.0f} MiB"
    )


def _reading(found: Outcome) -> Iterator[str]:
    for name, values in found.reads.items():
        yield f"  {name:<24} {len(values):6,} reads, {_ms(values)}"
    seconds, jobs = found.day
    each = seconds / max(1, jobs) * 1e6
    yield f"  statistics of a day      {jobs:,} jobs, {seconds:.2f} s, {each:.2f} µs each"


def _tables(found: Outcome) -> Iterator[str]:
    jobs = max(1, found.sizes["job"][1])
    for table, (size, rows) in found.sizes.items():
        yield f"  table {table:<13} {size:+13,} bytes, {rows:+9,} rows, {size / jobs:9.1f} bytes/job"
    yield f"  samples       {found.stored:,} in the store, {found.stored_bytes:,} bytes of data"


def judged(setting: Setting, found: Outcome) -> Iterator[Figure]:
    behind = found.total(lambda one: one.late + one.overdue + one.failures)
    cores, jobs = found.used(lambda cost: cost.server_cpu_s), found.rate(lambda one: one.jobs_ended)
    yield Figure(
        f"{setting.agents:,} agents, a sample in {setting.sample_every_s:g} s each: behind",
        behind,
        "",
        0,
        note=f"{found.rate(lambda one: one.samples):.0f} samples and {jobs:.1f} jobs a second, lag p99 "
        f"{percentile(found.lags_s, 0.99) * 1000:.0f} ms, {cores:.2f} cores of PostgreSQL",
    )
    reads = [one for values in found.reads.values() for one in values]
    worst = max(found.reads, key=lambda name: percentile(found.reads[name], 0.99))
    yield Figure(
        "p99 of a live read meanwhile",
        percentile(reads, 0.99) * 1000,
        "ms",
        200,
        note=f"{len(reads):,} reads, {_ms(reads)}; slowest: {worst}, {_ms(found.reads[worst])}",
    )
