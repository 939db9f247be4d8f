"""Two jobs side by side: the words of the comparison."""

from msgspec import Struct

from joblens.analysis.comparing.job_noise import change_percent

# In the order in which they are told.
GROUPS = (
    "command",
    "parameters",
    "seeds",
    "requirements",
    "inputs",
    "code",
    "programs",
    "versions",
    "environment",
    "container",
    "machine",
    "placement",
    "outputs",
)


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not the same; None: it is not there."""

    group: str
    name: str
    before: str | None
    after: str | None


class NumberChange(Struct, frozen=True, kw_only=True):
    """`verdict`: up, down, same (within what is usual), unknown."""

    key: str
    title: str
    unit: str  # s, bytes, count, J
    before: float | None
    after: float | None
    verdict: str = "unknown"
    usual_percent: float | None = None  # what earlier runs differ by in that direction; None: too few of them
    earlier_runs: int = 0  # it was judged by

    @property
    def ratio(self) -> float | None:
        if self.before is None or self.after is None or self.before <= 0:
            return None
        return self.after / self.before

    @property
    def percent(self) -> float | None:
        return change_percent(self.before, self.after)

    @property
    def has_moved(self) -> bool:
        return self.verdict in ("up", "down")


class Cause(Struct, frozen=True, kw_only=True):
    """`kind`: how much is known. measured: the counters say so; fits: it differs by as much; possible: it
    differs, and could have done it."""

    kind: str
    text: str
    numbers: tuple[str, ...] = ()  # keys that it is about


class JobDiff(Struct, frozen=True, kw_only=True):
    before: str
    after: str
    names: tuple[str, str]
    status: tuple[str, str]
    differences: tuple[Difference, ...]
    numbers: tuple[NumberChange, ...]
    causes: tuple[Cause, ...]
    same: tuple[str, ...]  # groups that were compared
    unknown: tuple[str, ...]  # groups of which one side, or both, have no record
