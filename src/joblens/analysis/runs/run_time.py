"""How long a run was driven. One that was stopped and resumed the next day did not take a day."""

from collections.abc import Sequence

from joblens.model.runs.run import JobResult, RunEnded, RunEvent, RunStarted


def driven_s(
    events: Sequence[RunEvent], results: Sequence[JobResult], until_us: int | None = None
) -> float | None:
    """The sum of its turns, each from a start to its end. Where whoever drove it was killed there is no end:
    then the turn lasted until the last thing that is known of its jobs. `until_us`: it is being driven
    now, and this is now. None: it was never started."""
    turns = sorted(
        (event for event in events if isinstance(event.fact, RunStarted | RunEnded)),
        key=lambda event: event.at_us,
    )
    total_us, began_us = 0, None
    known_us = sorted(_instants(results))
    for event in turns:
        if isinstance(event.fact, RunEnded):
            total_us += 0 if began_us is None else event.at_us - began_us
            began_us = None
            continue
        if began_us is not None:
            total_us += _last_before(known_us, began_us, event.at_us) - began_us
        began_us = event.at_us
    if not turns:
        return None
    if began_us is not None:
        ended_us = _last_before(known_us, began_us, None) if until_us is None else until_us
        total_us += max(0, ended_us - began_us)
    return total_us / 1_000_000


def _instants(results: Sequence[JobResult]) -> list[int]:
    began = [result.began_at_us for result in results if result.began_at_us]
    ended = [
        result.began_at_us + round(result.duration_s * 1_000_000)
        for result in results
        if result.began_at_us and result.duration_s is not None
    ]
    return began + ended


def _last_before(known_us: Sequence[int], from_us: int, until_us: int | None) -> int:
    return max(
        (at for at in known_us if at >= from_us and (until_us is None or at <= until_us)), default=from_us
    )
