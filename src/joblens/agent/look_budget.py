"""How much looking closely at jobs (each process, each thread) may cost: with many processes, or many jobs,
it is done less often than once a sample."""

# Of one core, for one job …
_SHARE = 1 / 2000
# … and for so many: what more of them take comes out of the share of each.
_FULL_SHARES = 8

# What this process measures: everyone who looks at a job is in it for as long.
MEASURED: set[object] = set()


def pause_ns(cost_ns: int) -> int:
    """How long to look no more at a job after a look that took so much CPU time."""
    return int(cost_ns / _SHARE * max(1.0, len(MEASURED) / _FULL_SHARES))
