"""How many tiny jobs are handed over before there is room for them, so that no lane waits for the next."""

from joblens.engine.waiting import Bucket

AHEAD_S = 0.030  # of work, in each lane
LONGEST_S = 0.100  # jobs that take longer gain nothing
MOST_EACH_LANE = 16


def how_many_more(bucket: Bucket) -> int:
    """For jobs of this bucket, of which the first one waits for room. The last few are kept back: whichever
    lane is free first shall have them."""
    if bucket.is_limited or bucket.shape.gpus or not bucket.seen or bucket.mean_s > LONGEST_S:
        return 0
    each = MOST_EACH_LANE
    if bucket.mean_s * MOST_EACH_LANE > AHEAD_S:
        each = max(1, round(AHEAD_S / bucket.mean_s))
    spare = len(bucket.positions) - bucket.lanes
    more = min(each * bucket.lanes - bucket.behind, spare)
    # Half empty before it is filled again: handing over several together costs hardly more than one.
    return more if more > 0 and (more == spare or 2 * more >= each * bucket.lanes) else 0
