"""`joblens doctor`: what can be measured and enforced on this machine."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options import shared_options

if TYPE_CHECKING:
    from joblens.app.settings import LoadedSettings


@click.command("doctor")
@shared_options
def command(session: Session) -> None:
    """What joblens can measure and enforce here, by what, and each gap with its reason and its fix.

    It tries for real: a group is made, read, limited and removed. Exit code 0 also with gaps."""
    with session.loaded_as_far_as_possible() as loaded:
        _show(session, loaded)


def _show(session: Session, loaded: "LoadedSettings") -> None:
    from joblens.app.diagnosis import config_capabilities, diagnose

    capabilities = [*diagnose(loaded.settings), *config_capabilities(loaded.skipped)]
    if session.json:
        available = sum(capability.available for capability in capabilities)
        document = {
            "available": available,
            "missing": sum(capability.is_gap for capability in capabilities),
            "not_applicable": sum(not capability.applies for capability in capabilities),
            "capabilities": [to_builtins(capability) for capability in capabilities],
        }
        session.write_json(document)
        return
    from joblens.views.doctor import render_doctor

    session.write_lines(render_doctor(capabilities, width=session.width, paint=session.palette))
