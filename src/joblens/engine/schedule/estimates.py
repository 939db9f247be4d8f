"""How long a job is expected to run, from the best that is known. None: any guess would do harm."""

from collections.abc import Mapping

from joblens.engine.schedule.waiting import Bucket

LEAST_SHARE = 1 / 3  # of their written time that jobs must need for it to be a guess at all


class Estimates:
    """History first; then as others of its kind took of late; then what was written, by how much of their
    written time others have needed."""

    def __init__(self, known_s: Mapping[int, float]) -> None:
        self._known_s = known_s
        self._seen = 0  # with a written time
        self._shares = 0.0  # of it that they needed, summed

    def observe(self, bucket: Bucket, duration_s: float) -> None:
        bucket.observe(duration_s)
        if bucket.requirements.timeout_s:
            self._seen += 1
            self._shares += min(1.0, duration_s / bucket.requirements.timeout_s)

    def of(self, index: int, bucket: Bucket) -> float | None:
        known = self._known_s.get(index)
        if known is not None:
            return known
        if bucket.seen:
            return bucket.mean_s
        written = bucket.requirements.timeout_s
        if written is None or not self._seen:
            return written
        share = self._shares / self._seen
        return written * share if share >= LEAST_SHARE else None
