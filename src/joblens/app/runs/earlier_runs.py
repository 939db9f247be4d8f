"""What earlier runs of a workflow tell about the next one: how long its jobs took."""

from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run
from joblens.ports.store import Store

_EARLIER_RUNS = 5
_MOST_ESTIMATED = 20_000  # jobs; beyond, reading earlier runs takes longer than it tells


def earlier_durations(store: Store, run: Run, plan: Plan | None = None) -> dict[str, float]:
    """Seconds that jobs took when they last succeeded in an earlier run of the workflow, by name. `plan`: of
    `run`, where it is at hand; most runs were made from the same file. Very large ones are not looked at."""
    if run.jobs > _MOST_ESTIMATED:
        return {}
    found: dict[str, float] = {}
    try:
        earlier = [
            other
            for other in store.runs(run.workflow_uuid)
            if other.uuid != run.uuid and other.created_at_us <= run.created_at_us
        ]
        for other in earlier[-_EARLIER_RUNS:]:
            took = {
                result.index: result.duration_s
                for result in store.run_results(other.uuid)
                if result.status is Status.SUCCESS and result.duration_s is not None and result.index >= 0
            }
            if took:
                names = _names_of(store.find_run(other.uuid), run, plan)
                found |= {names[index]: seconds for index, seconds in took.items()}
    except (JoblensError, IndexError):
        return {}  # an estimate less: no reason for the run not to go on
    return found


def _names_of(other: Run, run: Run, plan: Plan | None) -> list[str]:
    is_same_file = (
        other.spec_text == run.spec_text
        and other.tables == run.tables
        and other.options.parameters == run.options.parameters
    )
    if plan is None or other.spawned or not is_same_file:
        from joblens.app.workflows.loading import plan_of_run

        plan = plan_of_run(other)
    return [job.name for job in plan.jobs]
