"""How much looking closely at jobs (each process, each thread) may cost: with many processes, or many jobs,
it is done less often than once a sample."""

# Of one core, for one job …
_SHARE = 1 / 2000
# … and for so many: what more of them take comes out of the share of each.
_FULL_SHARES = 8

# Of CPU time: for the first looks at a job, which find all there is to be seen; a short one has no others.
_FREE_NS = 20_000_000

# What this process measures: everyone who looks at a job is in it for as long.
MEASURED: set[object] = set()


def pause_ns(cost_ns: int, spent_ns: int | None = None) -> int:
    """How long to look no more at a job after a look that took so much CPU time. `spent_ns`: what all looks
    have taken so far, this one included, by someone who begins with much to find."""
    jobs = max(1.0, len(MEASURED) / _FULL_SHARES)
    if spent_ns is not None and spent_ns <= _FREE_NS / jobs:
        return 0
    return int(cost_ns / _SHARE * jobs)
