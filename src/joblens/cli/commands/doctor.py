"""`joblens doctor`: measurement and enforcement on this machine."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand

if TYPE_CHECKING:
    from joblens.app.wiring.settings import LoadedSettings
    from joblens.model.capabilities import Capability


@click.command("doctor", cls=GroupedCommand)
@shared_options
def command(session: Session) -> None:
    """Show what joblens can measure and enforce here, and how to enable what is missing.

    Starts a process, measures it as 'run' would, and removes it. The exit code is 0 even if something is
    missing.
    """
    with session.loaded_as_far_as_possible() as loaded:
        _show(session, loaded)


def _accounting(capabilities: "list[Capability]") -> dict[str, dict[str, str]]:
    """Returns how single jobs and jobs in slots are measured. Empty: they cannot start."""
    from joblens.model.capabilities import SLOTS, Way

    rows = [row for row in capabilities if row.area == "accounting"]
    by_groups = next((row.name for row in rows if row.applies and row.name != "process-tree"), "")
    jobs = next((row.way for row in rows if row.way and row.name != SLOTS), Way.NONE)
    slots = next((row.way for row in rows if row.way and row.name == SLOTS), jobs)
    return {
        name: {"accounting": str(way) if way is Way.PROCESS_TREE else by_groups, "way": str(way)}
        for name, way in (("jobs", jobs), ("slots", slots))
        if way is not Way.NONE
    }


def _show(session: Session, loaded: "LoadedSettings") -> None:
    from joblens.app.doctor.diagnosis import config_capabilities, diagnose

    capabilities = [*diagnose(loaded.settings), *config_capabilities(loaded.skipped)]
    if session.json:
        available = sum(capability.available for capability in capabilities)
        document = {
            **_accounting(capabilities),
            "available": available,
            "missing": sum(capability.is_gap for capability in capabilities),
            "not_applicable": sum(not capability.applies for capability in capabilities),
            "capabilities": [to_builtins(capability) for capability in capabilities],
        }
        session.write_json(document)
        return
    from joblens.views.setup.doctor import render_doctor

    session.write_lines(render_doctor(capabilities, width=session.width, paint=session.palette))
