"""How the jobs of each tag stand, from rows of one tag and one status."""

from joblens.model.history import TaggedJobs
from joblens.model.jobs.job import Status
from joblens.stores.sql.asking import Ask

_HIGHEST = "\U0010ffff"


def read_tagged(ask: Ask, prefix: str) -> list[TaggedJobs]:
    """Newest first."""
    found: dict[str, TaggedJobs] = {}
    for tag, status, jobs, one_of_them, began_at_us in ask("jobs_of_tags", prefix, prefix + _HIGHEST):
        before = found.get(tag)
        found[tag] = TaggedJobs(
            tag=tag,
            one_of_them=one_of_them,
            began_at_us=began_at_us if before is None else min(before.began_at_us, began_at_us),
            by_status={**({} if before is None else before.by_status), Status(status): jobs},
        )
    return sorted(found.values(), key=lambda each: each.began_at_us, reverse=True)
