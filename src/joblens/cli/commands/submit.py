"""`joblens submit`: runs a command, a workflow file or a tool's script in the background, or on a queue."""

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from joblens.cli.commands.submitted import (
    clear_line,
    collecting,
    finish,
    report_running,
    report_submitted,
    say,
)
from joblens.cli.context import Session
from joblens.cli.options.common import click_options, job_options, shared_options
from joblens.cli.options.groups import RUN_GROUPS
from joblens.cli.options.request import (
    CELERY,
    CLUSTERS,
    CONTAINER_NAMES,
    LOCAL,
    check_options,
    container_from,
    request_from,
)
from joblens.cli.options.run import only_label, take_queue_options
from joblens.cli.options.spec import SpecCommand, with_spec
from joblens.cli.options.table import (
    JOB_OPTIONS,
    QUEUE_OPTIONS,
    SPEC_OPTIONS,
    defaults_of,
    first_word,
    split_spec,
)
from joblens.model.errors import InputError, UnknownTool

if TYPE_CHECKING:
    from joblens.app.queue.submission import QueueRequest
    from joblens.model.jobs.job import ContainerJob, Record


_KEY, _MISTAKE = "joblens.tool", "joblens.unknown_tool"
_DEVICES = ("cpu", "gpu", "intel-gpu")


class ToolOrSpecCommand(SpecCommand):
    """The first word, unless it is behind `--`, may be a tool's name. Then a script follows, and options
    may be anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        index = first_word(args)
        try:
            tool = None if index is None else _tool(args[index], in_container=_names_container(args[:index]))
        except UnknownTool as error:
            tool, ctx.meta[_MISTAKE] = None, error  # reported once the options are known to be right
        ctx.meta[_KEY] = tool
        if tool is None or index is None:
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = True
        try:
            return click.Command.parse_args(self, ctx, args[:index] + args[index + 1 :])
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.format_message()} '{tool}' is a tool; a command goes after --: "
                f"joblens {ctx.info_name} -- {tool} …",
                ctx,
            ) from None


def _names_container(options: list[str]) -> bool:
    return any(argument.partition("=")[0] == "--container" for argument in options)


def _tool(argument: str, *, in_container: bool) -> str | None:
    """Returns the word if it names a tool; None: a command or a file. Any other word was mistyped, or is
    a tool that is not installed. Programs inside a container are unknown here."""
    import os
    import shutil

    from joblens.app.queue.tools import tool_shelf
    from joblens.spec.formats.positions import nearest_word

    if os.sep in argument or split_spec([argument])[0] is not None:
        return None
    shelf = tool_shelf()
    if argument in shelf.tools or argument in shelf.broken:
        return argument
    if shutil.which(argument) is not None or os.path.exists(argument):
        return None
    near = nearest_word(argument, shelf.tools)
    if in_container and not near:
        return None
    meant = f"; did you mean '{near}'?" if near else ""
    usual = "joblens list-tools shows the tools; a command that exists only elsewhere goes after --"
    raise UnknownTool(
        f"there is no tool or command '{argument}'{meant}", hint="; ".join(shelf.skipped) or usual
    )


def with_tool(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `values` with the tool as `tool_name` and its script as `tool_script`, or the workflow file
    as `spec`; all None: a command."""
    meta = click.get_current_context().meta
    if _MISTAKE in meta:
        raise meta[_MISTAKE]
    tool = meta.get(_KEY)
    if tool is None:
        return {**with_spec(values), "tool_name": None, "tool_script": None}
    arguments = values["command_line"]
    if len(arguments) != 1:
        message = (
            f"'{arguments[1]}' after the script {arguments[0]}" if arguments else f"{tool} needs a script"
        )
        raise click.UsageError(
            f"{message}: joblens submit {tool} SCRIPT [OPTIONS]; a command goes after --: "
            f"joblens submit -- {tool} …"
        )
    return {**values, "spec": None, "tool_name": tool, "tool_script": arguments[0]}


def split_devices(devices: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Splits --device into the device of a tool and those of a container. Returns (the first, the others)."""
    kinds = [argument for argument in devices if argument in _DEVICES]
    unknown = next(
        (argument for argument in devices if argument not in _DEVICES and "/" not in argument), None
    )
    if unknown is not None:
        raise click.UsageError(
            f"--device {unknown}: tools run on {', '.join(_DEVICES)}; "
            "devices of a container are paths such as /dev/dri"
        )
    if len(kinds) > 1:
        raise click.UsageError(f"--device {kinds[0]} and --device {kinds[1]}: choose one device")
    return (kinds[0] if kinds else ""), tuple(argument for argument in devices if argument not in _DEVICES)


def submit_command(session: Session, values: dict[str, Any]) -> None:
    from joblens.app.queue.submission import QueueRequest

    request = QueueRequest(request=request_from(values, background=False), label=only_label(values))
    _enqueue(session, request, values)


def submit_tool(session: Session, values: dict[str, Any]) -> None:
    from joblens.app.queue.tools import tool_shelf

    for name, flag in (("shell", "--shell"), ("tool", "--tool"), ("script", "--script"), ("cwd", "--cwd")):
        if values[name]:
            raise InputError(f"{flag} applies to a command; the tool {values['tool_name']} sets it itself")
    if values["container_engine"] == "apptainer":
        raise InputError(
            "--container-engine apptainer: tools run in docker or podman",
            hint="a command can run in Apptainer: joblens submit --container-engine apptainer … -- COMMAND",
        )
    request = _tool_request(session, values)
    for folder in tool_shelf().skipped:  # it may have had another tool of that name
        session.warn(folder)
    _enqueue(session, request, values)


def _tool_request(session: Session, values: dict[str, Any]) -> "QueueRequest":
    """Options override the tool's own values."""
    from joblens.app.queue.tool_tasks import queue_request, runs_here
    from joblens.app.queue.tools import tool_request
    from joblens.app.wiring.machine import missing_device

    device, devices = split_devices(values["devices"])
    values = {**values, "devices": devices, "command_line": (values["tool_name"],)}
    plain = request_from({**values, **_NO_CONTAINER}, background=False)
    run = tool_request(
        values["tool_name"],
        values["tool_script"],
        plain.params,
        device=device,
        requirements=plain.requirements,
        container=_container(values),
        env=plain.env,
        here=runs_here(session.settings) and values["engine"] not in CLUSTERS,
    )
    missing = missing_device(device)
    if missing:  # otherwise it would have been refused
        session.note(
            f"joblens: on this machine {missing}; a worker on another machine must run it (--queue NAME)"
        )
    request = queue_request(run, session.settings, retry_lost=_retry_lost(values))
    tools = request.request
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
    return replace(request, request=merged, label=only_label(values))


_NO_CONTAINER = defaults_of(row for row in JOB_OPTIONS if row.name in CONTAINER_NAMES)


def _container(values: dict[str, Any]) -> "str | ContainerJob | None":
    """An image alone is combined with the tool's container."""
    made = container_from(values)
    if made is None:
        return None
    is_plain = all(values[name] in (None, (), False) for name in _NO_CONTAINER if name != "container")
    return made.image if is_plain else made


def _retry_lost(values: dict[str, Any]) -> Any:
    from joblens.model.jobs.job import RetryLost

    return RetryLost(values["retry_lost"]) if values["retry_lost"] else None


def _enqueue(session: Session, request: "QueueRequest", values: dict[str, Any]) -> None:
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.queue.submission import enqueue

    timeout_s = seconds_of("-t", values["wait_timeout"])
    if values["engine"] in CLUSTERS:
        from joblens.cli.commands.run_on_engine import restart_driver, submit_to_cluster

        record = submit_to_cluster(session, values, request)
        report_submitted(session, record, values, lambda: restart_driver(session, record))
        return
    warnings, warn = collecting(session)
    (record,) = enqueue([request], session.settings, session.options.config, warn)
    if values["wait"] and session.is_terminal and not session.json:
        _show_while_waiting(session, record, values, timeout_s)
    else:
        report_submitted(session, record, values, session.restart_embedded_worker, warnings)


def _show_while_waiting(
    session: Session, record: "Record", values: dict[str, Any], timeout_s: float | None
) -> None:
    from joblens.cli.commands.status import follow_status, terminal_line
    from joblens.views.runs.tasks import live_line, render_status

    say(session, record)
    with report_running(session, f"job {record.job.uuid}", record.job.uuid):
        status = follow_status(session, record.job.uuid, 0.5, terminal_line(session, live_line), timeout_s)
    clear_line()
    session.write_lines(render_status(status, paint=session.palette))
    finish(session, session.store.find(record.job.uuid), values["wait_timeout"])


@click.command(
    cls=ToolOrSpecCommand,
    context_settings={"allow_interspersed_args": False},
    groups=RUN_GROUPS,
    forms=(
        "[OPTIONS] -- COMMAND [ARGUMENTS]...",
        "[OPTIONS] --shell LINE",
        "[OPTIONS] FILE",
        "[OPTIONS] TOOL SCRIPT",
    ),
)
@job_options
@click_options(SPEC_OPTIONS)
@click_options(QUEUE_OPTIONS)
@shared_options
def command(session: Session, /, **values: Any) -> None:
    """Run COMMAND, the jobs of a workflow FILE, or TOOL SCRIPT in the background, measured as with 'run'.
    The job keeps running when the terminal is closed.

    Tool scripts, and with a broker all jobs, go to queue workers ('joblens worker'). If no broker is
    configured, joblens starts a worker on this machine while there is work.

    Prints the ID of the job or run, for status, list, top, logs, metrics, wait and cancel.
    """
    values = with_tool(values)
    if values["wait_timeout"] is not None and not values["wait"]:
        raise InputError("-t needs --wait")
    if session.server_url is not None:
        from joblens.cli.commands import on_server

        on_server.submit(session, values)
        return
    take_queue_options(session, values)
    if values["spec"] is not None:
        from joblens.cli.commands.run_spec import submit_spec

        submit_spec(session, values)
        return
    engine = _engine(session, values)
    check_options(engine, values)
    if values["tool_name"] is not None:
        submit_tool(session, values)
    elif engine != LOCAL:
        submit_command(session, values)
    else:
        _submit_here(session, values)


def _engine(session: Session, values: dict[str, Any]) -> str:
    """Returns the requested engine, otherwise the one implied by other options and the configuration."""
    engine: str | None = values["engine"]
    if values["tool_name"] is not None:
        return engine if engine in CLUSTERS else CELERY
    if engine is not None:
        return engine
    needs_workers = any(values[name] for name in ("queue", "retry_lost", "label"))
    return CELERY if needs_workers or session.settings.queue.broker else LOCAL


def _submit_here(session: Session, values: dict[str, Any]) -> None:
    """Submits to the supervisor of this user."""
    from joblens.app.jobs.preparation import prepare
    from joblens.app.jobs.submission import submit

    prepared = prepare(request_from(values, background=True), session.settings)
    warnings, warn = collecting(session)
    record = submit(prepared, session.settings, session.options.config, warn)
    report_submitted(session, record, values, session.recover_orphans, warnings)
