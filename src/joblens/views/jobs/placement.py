"""Where a cluster has put a job, in words."""

from joblens.model.jobs.job import Placement
from joblens.views.text.style import clean

_ENGINES = {"ray": "Ray", "slurm": "Slurm"}


def placement_pairs(placement: Placement | None) -> list[tuple[str, str]]:
    if placement is None:
        return []
    engine = _ENGINES.get(placement.engine, placement.engine)
    kind = "allocation" if placement.is_allocation else "job" if placement.engine == "slurm" else "task"
    asked = " ".join(f"{name}={value}" if value else name for name, value in placement.asked.items())
    whose = (engine, kind, placement.job_id) if placement.job_id else (engine,)
    return [
        ("placed by", clean(" ".join(whose))),
        ("cluster", clean(placement.cluster)),
        ("nodes", clean(", ".join(placement.nodes))),
        ("node id", clean(placement.node_id)),
        ("partition", clean(placement.partition)),
        ("account", clean(placement.account)),
        ("asked for", clean(asked)),
    ]
