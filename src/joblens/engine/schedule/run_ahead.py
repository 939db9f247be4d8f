"""How many tiny jobs are handed over before there is room for them, so that no lane waits for the next."""

from joblens.engine.schedule.capacity import Ahead
from joblens.engine.schedule.waiting import Bucket


def how_many_more(bucket: Bucket, ahead: Ahead) -> int:
    """For jobs of this bucket, of which the first one waits for room. The last few are kept back: whichever
    lane is free first shall have them."""
    if bucket.has_container:  # an engine starts it, at once
        return 0
    if (bucket.is_limited and not ahead.limited_too) or bucket.shape.gpus:
        return 0
    if not bucket.seen or bucket.mean_s > ahead.longest_s:
        return 0
    each = ahead.most_each_lane
    if bucket.mean_s * each > ahead.work_s:
        each = max(1, round(ahead.work_s / bucket.mean_s))
    spare = len(bucket.positions) - bucket.lanes
    more = min(each * bucket.lanes - bucket.behind, spare)
    # Half empty before it is filled again: handing over several together costs hardly more than one.
    return more if more > 0 and (more == spare or 2 * more >= each * bucket.lanes) else 0
