"""`joblens worker`: runs jobs of a queue on this machine."""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import count_from, shared_options
from joblens.cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from joblens.model.delivery import Claim, WorkerInfo
    from joblens.model.jobs.job import Record


@click.command(cls=GroupedCommand)
@click.option(
    "--broker",
    metavar="URL",
    help="Broker: redis://…, amqp://… or a directory. Default: the setting queue.broker.",
)
@click.option(
    "-c",
    "--concurrency",
    type=count_from(1),
    metavar="N",
    help="Maximum number of concurrent jobs. Default: the number of CPUs.",
)
@click.option("-Q", "--queues", metavar="A,B", help="Queues to serve. Default: the setting queue.name.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    help="Run only jobs with this label. Repeatable. Default: only jobs without a label.",
)
@click.option("-n", "--name", metavar="NAME", help="Prefix of the worker's name. Default: the host name.")
@click.option("--any-user", is_flag=True, help="Also run jobs submitted by other users, as this user.")
@click.option("-v", "--verbose", is_flag=True, help="Print one line per job.")
@click.option(
    "--own-group",
    is_flag=True,
    help="Create job cgroups inside this process's own delegated cgroup (systemd Delegate=yes).",
)
@shared_options
def command(session: Session, /, *, broker: str | None, **values: Any) -> None:
    """Run queued jobs on this machine until stopped.

    Takes queued jobs from the store; the broker only wakes it. Ctrl-C or SIGTERM: finish running jobs,
    take no new ones. A second signal: stop running jobs and requeue them.
    """
    from joblens.app.queue.notifiers import broker_of
    from joblens.app.queue.worker import WorkerOptions
    from joblens.app.queue.worker_service import queues_of, serve, warn_of_password
    from joblens.cli.options.run import checked_labels

    session.override("queue.broker", broker)
    options = WorkerOptions(
        concurrency=values["concurrency"],
        queues=queues_of(values["queues"]),
        labels=checked_labels(values["labels"]),
        name=values["name"] or "",
        any_user=values["any_user"],
    )
    warn_of_password(broker, broker_of(session.settings), session.warn)
    session.own_jobs()
    lines = _Lines(is_json=session.json)
    served = serve(
        session.settings,
        options,
        lines.note,
        has_begun=lines.begun,
        has_ended=lines.job if values["verbose"] else None,
        divides_own_group=values["own_group"],
    )
    lines.left(served.info.name, {str(status): count for status, count in served.counts.items()})


class _Lines:
    """Messages of the worker, on standard error, or as JSON with one object per line on standard output."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    def _write(self, event: str, text: str, **more: Any) -> None:
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
        self._write("note", text)

    def begun(self, info: "WorkerInfo", store: str) -> None:
        jobs = "one job at a time" if info.concurrency == 1 else f"{info.concurrency} jobs at a time"
        labels = f" with label {', '.join(info.labels)}" if info.labels else ""
        text = (
            f"worker {info.name}: {jobs} of {', '.join(info.queues)}{labels}; "
            f"broker {info.broker}, store {store}"
        )
        self._write(
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
        took = f" in {outcome.duration_s:.3f}s" if outcome is not None else ""
        again = f", attempt {claim.fence}" if claim.fence > 1 else ""
        self._write(
            "job",
            f"job {record.job.uuid} ({record.job.name}): {record.status}{took}{again}",
            job=record.job.uuid,
            name=record.job.name,
            status=str(record.status),
            attempt=claim.fence,
            duration_seconds=outcome.duration_s if outcome is not None else None,
        )

    def left(self, name: str, counts: dict[str, int]) -> None:
        counts_text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no job"
        self._write("ended", f"worker {name} ends: {counts_text}", worker=name, jobs=counts)
