"""`joblens config`: the settings in force."""

import os
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from joblens.cli.context import Session
from joblens.cli.options import shared_options

if TYPE_CHECKING:
    from joblens.app.settings import LoadedSettings


@click.group("config")
def command() -> None:
    """The settings in force and where each comes from."""


@command.command("show")
@shared_options
def show(session: Session) -> None:
    """Every setting with its value and its origin."""
    with session.loaded_as_far_as_possible() as loaded:
        _show(session, loaded)


def _show(session: Session, loaded: "LoadedSettings") -> None:
    from joblens.spec.settings_list import all_settings
    from joblens.views.config import render_config, setting_values

    values = setting_values(to_builtins(loaded.settings))
    if session.json:
        session.write_json(
            {name: {"value": value, "origin": loaded.origins[name]} for name, value in values.items()}
        )
        return
    kinds = {name: setting.kind.value for name, setting in all_settings().items()}
    session.write_lines(render_config(values, kinds, loaded.origins, session.palette))


@command.command("path")
@shared_options
def path(session: Session) -> None:
    """The configuration files in the order they are applied; later ones win."""
    with session.loaded_as_far_as_possible() as loaded:
        _show_places(session, loaded.files, loaded.skipped)


def _show_places(session: Session, read: tuple[str, ...], skipped: dict[str, str]) -> None:
    from joblens.app.places import SYSTEM_CONFIG, user_config_path

    places = list(dict.fromkeys((SYSTEM_CONFIG, user_config_path(), *skipped, *read)))
    if session.json:
        session.write_json(
            [{"path": file, "read": file in read, "reason": skipped.get(file, "")} for file in places]
        )
        return
    session.write_lines([_line(file, skipped.get(file, ""), is_read=file in read) for file in places])


def _line(file: str, reason: str, *, is_read: bool) -> str:
    if is_read:
        return f"{file}  read"
    if reason:
        return f"{file}  not read: {reason}"
    return f"{file}  not read" if os.path.exists(file) else f"{file}  not there"
