"""`joblens config`: the settings in force."""

import os
import sys
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import shared_options

if TYPE_CHECKING:
    from joblens.app.wiring.settings import LoadedSettings
    from joblens.model.settings import Settings


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
    from joblens.model.setting_list import all_settings
    from joblens.views.setup.config import render_config, setting_values

    values, origins = setting_values(to_builtins(loaded.settings)), dict(loaded.origins)
    for name, (value, origin) in _values_of_unset(loaded.settings).items():
        if values[name] is None:
            values[name], origins[name] = value, origin
    if session.json:
        session.write_json(
            {name: {"value": value, "origin": origins[name]} for name, value in values.items()}
        )
        return
    kinds = {name: setting.kind.value for name, setting in all_settings().items()}
    session.write_lines(render_config(values, kinds, origins, session.palette))


def _values_of_unset(settings: "Settings") -> dict[str, tuple[object, str]]:
    """Returns the effective values of settings that are not set, with their origins, by name."""
    from joblens.app.jobs.preparation import DEFAULT_INTERVAL_S
    from joblens.app.queue.notifiers import broker_folder
    from joblens.app.wiring.drivers import default_journal_dir, history_file, logs_root, store_name

    found: dict[str, object] = {
        "job_metrics.default_sample_rate": DEFAULT_INTERVAL_S,
        "store.url": store_name(settings),
        "store.journal_dir": default_journal_dir(),
        "sinks.history.path": history_file(settings),
        "output.dir": logs_root(settings),
        "queue.broker": broker_folder(settings),
        "slurm.python": sys.executable,
    }
    values = {name: (value, "default") for name, value in found.items()}
    address = os.environ.get("RAY_ADDRESS")
    return values | ({"ray.address": (address, "environment RAY_ADDRESS")} if address else {})


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
