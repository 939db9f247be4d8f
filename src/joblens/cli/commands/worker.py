"""`joblens worker`: run jobs of a queue on this machine."""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import count_from, shared_options

if TYPE_CHECKING:
    from joblens.model.delivery import Claim, WorkerInfo
    from joblens.model.jobs.job import Record


@click.command()
@click.option("--broker", metavar="URL", help="redis://…, amqp://… or a folder; instead of queue.broker.")
@click.option(
    "-c",
    "--concurrency",
    type=count_from(1),
    metavar="N",
    help="Places for jobs. Without: CPUs.",
)
@click.option("-Q", "--queues", metavar="A,B", help="Queues it serves, instead of queue.name.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="Run only jobs with this label (repeatable). Default: only jobs without a label.",
)
@click.option("-n", "--name", metavar="NAME", help="How its name begins. Without: the host's name.")
@click.option("--any-user", is_flag=True, help="Run jobs that other users have submitted, as this user.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each job.")
@click.option("--own-group", is_flag=True, help="Make job groups in the delegated group it is alone in.")
@shared_options
def command(session: Session, /, *, broker: str | None, **given: Any) -> None:
    """Run jobs of a queue on this machine, until told to end.

    It takes jobs from the store that submit has filled, and hears of them through the broker. Ctrl-C or TERM:
    it takes nothing more and finishes what runs; once more: it ends its jobs and leaves them to others."""
    from joblens.app.queue.notifiers import broker_of
    from joblens.app.queue.worker import WorkerOptions
    from joblens.app.queue.worker_service import queues_of, serve, warn_of_password
    from joblens.cli.options.run import checked_labels

    session.override("queue.broker", broker)
    options = WorkerOptions(
        concurrency=given["concurrency"],
        queues=queues_of(given["queues"]),
        labels=checked_labels(given["labels"]),
        name=given["name"] or "",
        any_user=given["any_user"],
    )
    warn_of_password(broker, broker_of(session.settings), session.warn)
    session.own_jobs()
    lines = _Lines(is_json=session.json)
    served = serve(
        session.settings,
        options,
        lines.note,
        has_begun=lines.begun,
        has_ended=lines.job if given["verbose"] else None,
        divides_own_group=given["own_group"],
    )
    lines.left(served.info.name, {str(status): count for status, count in served.counts.items()})


class _Lines:
    """What it tells, on standard error, or as JSON with one object a line on standard output."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    def _tell(self, event: str, text: str, **more: Any) -> None:
        if self._is_json:
            from msgspec import json

            facts = {"event": event, "at": time.time(), **more}
            sys.stdout.write(json.encode(facts if more else {**facts, "text": text}).decode() + "\n")
            sys.stdout.flush()
        else:
            from joblens.views.text.style import clean_text

            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {clean_text(text)}\n")
            sys.stderr.flush()

    def note(self, text: str) -> None:
        self._tell("note", text)

    def begun(self, info: "WorkerInfo", store: str) -> None:
        jobs = "one job at a time" if info.concurrency == 1 else f"{info.concurrency} jobs at a time"
        labels = f" with label {', '.join(info.labels)}" if info.labels else ""
        text = (
            f"worker {info.name}: {jobs} of {', '.join(info.queues)}{labels}; "
            f"broker {info.broker}, store {store}"
        )
        self._tell(
            "began",
            text,
            worker=info.name,
            concurrency=info.concurrency,
            queues=info.queues,
            labels=info.labels,
            broker=info.broker,
            store=store,
        )

    def job(self, record: "Record", claim: "Claim") -> None:
        outcome = record.outcome
        took = f" in {outcome.duration_s:.3f} s" if outcome is not None else ""
        again = f", attempt {claim.fence}" if claim.fence > 1 else ""
        self._tell(
            "job",
            f"job {record.job.uuid} ({record.job.name}): {record.status}{took}{again}",
            job=record.job.uuid,
            name=record.job.name,
            status=str(record.status),
            attempt=claim.fence,
            duration_seconds=outcome.duration_s if outcome is not None else None,
        )

    def left(self, name: str, counts: dict[str, int]) -> None:
        done = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no job"
        self._tell("ended", f"worker {name} ends: {done}", worker=name, jobs=counts)
