"""`joblens config`: the settings in force."""

import os
from typing import TYPE_CHECKING

import click

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import shared_options

if TYPE_CHECKING:
    from joblens.app.wiring.settings import LoadedSettings


@click.group("config", cls=CommandGroup)
def command() -> None:
    """Show the settings and where each comes from."""


@command.command("show")
@shared_options
def show(session: Session) -> None:
    """Show every setting with its value and origin."""
    with session.loaded_as_far_as_possible() as loaded:
        _show(session, loaded)


def _show(session: Session, loaded: "LoadedSettings") -> None:
    from joblens.app.doctor.effective_settings import effective_values
    from joblens.model.setting_list import all_settings
    from joblens.views.setup.config import render_config

    found = effective_values(loaded.settings, loaded.origins)
    if session.json:
        session.write_json(
            {name: {"value": each.value, "origin": each.origin} for name, each in found.items()}
        )
        return
    kinds = {name: setting.kind.value for name, setting in all_settings().items()}
    values = {name: each.value for name, each in found.items()}
    origins = {name: each.origin for name, each in found.items()}
    session.write_lines(render_config(values, kinds, origins, session.palette))


@command.command("path")
@shared_options
def path(session: Session) -> None:
    """List the configuration files in the order they are applied; later ones override earlier ones."""
    with session.loaded_as_far_as_possible() as loaded:
        _show_paths(session, loaded.files, loaded.skipped)


def _show_paths(session: Session, read: tuple[str, ...], skipped: dict[str, str]) -> None:
    from joblens.app.wiring.drivers import SYSTEM_CONFIG, user_config_path

    files = list(dict.fromkeys((SYSTEM_CONFIG, user_config_path(), *skipped, *read)))
    if session.json:
        session.write_json(
            [{"path": file, "read": file in read, "reason": skipped.get(file, "")} for file in files]
        )
        return
    session.write_lines([_line(file, skipped.get(file, ""), is_read=file in read) for file in files])


def _line(file: str, reason: str, *, is_read: bool) -> str:
    if is_read:
        return f"{file}  read"
    if reason:
        return f"{file}  not read: {reason}"
    return f"{file}  not read" if os.path.exists(file) else f"{file}  not found"
