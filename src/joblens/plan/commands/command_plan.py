"""Plan of one command on a cluster: a job with its requirements. Its ticket has what runs."""

from msgspec import Struct, json

from joblens.model.delivery import RetryLost
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan, PlannedJob

PLAN_NAME = "commands"
_NEVER_RUN = "exit 125"  # the ticket has the real command; a plan needs one


class CommandSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Text of the run (`Run.spec_text`), as JSON."""

    name: str  # of the job
    requirements: Requirements = Requirements()
    retry_lost: RetryLost | None = None


def text_of_command(spec: CommandSpec) -> str:
    return json.encode(spec).decode()


def plan_of_command(text: str) -> Plan:
    spec = json.decode(text, type=CommandSpec)
    job = PlannedJob(
        name=spec.name, command=_NEVER_RUN, requirements=spec.requirements, retry_lost=spec.retry_lost
    )
    return Plan(name=PLAN_NAME, jobs=(job,))
