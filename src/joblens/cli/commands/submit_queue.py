"""`joblens submit` for what goes to workers of a queue: a tool's script, and with a broker any command."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from joblens.cli.commands.submitted import clear_line, collecting, finish, goes_on, say, told
from joblens.cli.commands.tool_command import split_devices
from joblens.cli.context import Session
from joblens.cli.options.cluster import CLUSTERS
from joblens.cli.options.job_request import container_from, request_from
from joblens.cli.options.run import only_label
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.queue.queueing import QueueRequest
    from joblens.model.jobs.job import ContainerJob, Record


def submit_command(session: Session, given: dict[str, Any]) -> None:
    from joblens.app.queue.queueing import QueueRequest

    asked = QueueRequest(request=request_from(given, background=False), label=only_label(given))
    _enqueue(session, asked, given)


def submit_tool(session: Session, given: dict[str, Any]) -> None:
    from joblens.app.queue.tools import tool_shelf

    for name, flag in (("shell", "--shell"), ("tool", "--tool"), ("script", "--script"), ("cwd", "--cwd")):
        if given[name]:
            raise InputError(f"{flag} is for a command; {given['tool_name']} is a tool and says that itself")
    if given["container_engine"] == "apptainer":
        raise InputError(
            "--container-engine apptainer: a tool's container is made by docker or podman",
            hint="a command can run in Apptainer: joblens submit --container-engine apptainer … -- COMMAND",
        )
    asked = _tool_request(session, given)
    for folder in tool_shelf().passed_over:  # it may have had another tool of that name
        session.warn(folder)
    _enqueue(session, asked, given)


def _tool_request(session: Session, given: dict[str, Any]) -> "QueueRequest":
    """The options go before what the tool says."""
    from joblens.app.queue.devices import missing_device
    from joblens.app.queue.tool_tasks import queue_request, runs_here
    from joblens.app.queue.tools import tool_request

    device, devices = split_devices(given["devices"])
    given = {**given, "devices": devices, "command_line": (given["tool_name"],)}
    plain = request_from({**given, **_NO_CONTAINER}, background=False)
    run = tool_request(
        given["tool_name"],
        given["tool_script"],
        plain.params,
        device=device,
        requirements=plain.requirements,
        container=_container(given),
        env=plain.env,
        here=runs_here(session.settings) and given["engine"] not in CLUSTERS,
    )
    missing = missing_device(device)
    if missing:  # else it would have been refused
        session.note(f"joblens: on this machine {missing}; a worker on another has to take it (--queue NAME)")
    asked = queue_request(run, session.settings, retry_lost=_retry_lost(given))
    tools = asked.request
    merged = replace(
        plain,
        argv=tools.argv,
        name=plain.name or tools.name,
        tool=tools.tool,
        script=tools.script,
        params=tools.params,
        env=tools.env,
        cwd=tools.cwd,
        requirements=tools.requirements,
        container=tools.container,
    )
    return replace(asked, request=merged, label=only_label(given))


_NO_CONTAINER: dict[str, Any] = {
    "container": None,
    "container_engine": None,
    "container_socket": None,
    "container_name": None,
    "volumes": (),
    "devices": (),
    "container_network": None,
    "container_user": None,
    "container_workdir": None,
    "entrypoint": None,
    "pull": False,
}


def _container(given: dict[str, Any]) -> "str | ContainerJob | None":
    """An image alone goes into what the tool says of its container."""
    made = container_from(given)
    if made is None:
        return None
    is_plain = all(given[name] in (None, (), False) for name in _NO_CONTAINER if name != "container")
    return made.image if is_plain else made


def _retry_lost(given: dict[str, Any]) -> Any:
    from joblens.model.delivery import RetryLost

    return RetryLost(given["retry_lost"]) if given["retry_lost"] else None


def _enqueue(session: Session, asked: "QueueRequest", given: dict[str, Any]) -> None:
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.queue.queueing import enqueue

    timeout_s = seconds_of("-t", given["wait_timeout"])
    if given["engine"] in CLUSTERS:
        from joblens.cli.commands.run_on_engine import care_for_command, submit_to_cluster

        record = submit_to_cluster(session, given, asked)
        told(session, record, given, lambda: care_for_command(session, record))
        return
    warnings, warn = collecting(session)
    (record,) = enqueue([asked], session.settings, session.options.config, warn)
    if given["wait"] and session.is_terminal and not session.json:
        _show_while_waiting(session, record, given, timeout_s)
    else:
        told(session, record, given, session.care_for_queue, warnings)


def _show_while_waiting(
    session: Session, record: "Record", given: dict[str, Any], timeout_s: float | None
) -> None:
    from joblens.cli.commands.status import follow_status, terminal_line
    from joblens.views.runs.tasks import live_line, render_status

    say(session, record)
    with goes_on(session, f"job {record.job.uuid}", record.job.uuid):
        status = follow_status(session, record.job.uuid, 0.5, terminal_line(session, live_line), timeout_s)
    clear_line()
    session.write_lines(render_status(status, paint=session.palette))
    finish(session, session.store.find(record.job.uuid), given["wait_timeout"])
