"""Whose turn it is: a kind of job that waits while many others are started goes first once in a while.

What is counted are starts, not seconds: short jobs can wait for less time than long ones. How many are let
past grows with how many run at a time, so that the room that is kept free for a large job, about once what
runs at a time, stays small against the work in between; and with how many kinds wait, or turns would take the
place of the order. Only among jobs of the same priority."""

from joblens.engine.schedule.backfill import PATIENCE
from joblens.engine.schedule.shapes import Buckets
from joblens.engine.schedule.waiting import Bucket, Waiting
from joblens.model.runs.plan import Plan

ROUNDS = 16  # how often everything that runs at a time may be replaced before it is someone else's turn
TURNS = 2  # that every other kind may have meanwhile
MOST_LOOKED_AT = 256  # kinds of jobs


class Ageing:
    def __init__(self, plan: Plan, buckets: Buckets, waiting: Waiting) -> None:
        self._jobs = plan.jobs
        self._buckets = buckets
        self._waiting = waiting
        self._starts = 0
        self._look_at = PATIENCE  # no bucket is due before so many starts

    def begins_to_wait(self, bucket: Bucket) -> None:
        bucket.waits_since = self._starts

    def had_its_turn(self, bucket: Bucket) -> None:
        self._starts += 1
        bucket.waits_since = self._starts

    def due(self, running: int) -> Bucket | None:
        """The one that has waited longest, when that is too long."""
        if self._starts < self._look_at:
            return None
        oldest = self._oldest()
        patience = max(PATIENCE, ROUNDS * running, TURNS * len(self._waiting.heads))
        if oldest is not None and self._starts - oldest.waits_since >= patience:
            return oldest
        since = self._starts if oldest is None else oldest.waits_since
        self._look_at = max(self._starts + 1, since + patience)
        return None

    def _oldest(self) -> Bucket | None:
        """Of those whose first job has the highest priority that waits."""
        oldest: Bucket | None = None
        priority: int | None = None
        for position in self._waiting.heads[:MOST_LOOKED_AT]:
            index = self._waiting.index_at(position)
            own = self._jobs[index].priority
            if priority is None:
                priority = own
            elif own < priority:
                break
            bucket = self._buckets.of(index)
            if oldest is None or bucket.waits_since < oldest.waits_since:
                oldest = bucket
        return oldest
