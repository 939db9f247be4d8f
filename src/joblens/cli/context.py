"""Session of a command: settings and store, each opened once, and output."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joblens.app.driving.start import Runs
    from joblens.app.jobs.logs import Output
    from joblens.app.runs.control import Drivers
    from joblens.app.wiring.agent_context import OwnLog
    from joblens.app.wiring.drivers import StoreConnection
    from joblens.app.wiring.settings import LoadedSettings
    from joblens.model.jobs.job import Record
    from joblens.model.settings import Settings
    from joblens.ports.store import QueueStore, Store
    from joblens.stores.remote import RemoteStore
    from joblens.views.text.style import Palette

_WIDTH_UNKNOWN = 80
_NO_EDGE = 1 << 20
_SERVER = "JOBLENS_SERVER"


class Globals(Struct, frozen=True, kw_only=True):
    """Options accepted before or after the command."""

    store: str | None = None
    server: str | None = None
    config: str | None = None
    json: bool = False
    no_color: bool = False


def with_values(before: Globals, values: dict[str, Any]) -> Globals:
    """Returns `before` with the options that `values` sets; keys are names of the option table."""
    format_name = values["global_format"]
    wants_json = before.json if format_name is None else format_name == "json"
    return Globals(
        store=values["global_store"] if values["global_store"] is not None else before.store,
        server=values["global_server"] if values["global_server"] is not None else before.server,
        config=values["global_config"] if values["global_config"] is not None else before.config,
        json=values["global_json"] or wants_json,
        no_color=values["global_no_color"] or before.no_color,
    )


class Session:
    """One call of one command."""

    def __init__(self, options: Globals) -> None:
        self.options = options
        self._loaded: LoadedSettings | None = None
        self._connection: StoreConnection | None = None
        self._log: OwnLog | None = None
        self._drives_runs = False
        self._overrides: dict[str, str] = {}
        for stream in (sys.stdout, sys.stderr):
            # job names may hold bytes that are not text; printing them must not fail
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    @property
    def json(self) -> bool:
        return self.options.json

    def override(self, setting: str, text: str | None) -> None:
        """Replaces a setting by an option; None: not given. Call before settings are loaded."""
        if text is not None:
            assert self._loaded is None
            self._overrides[setting] = text

    @property
    def loaded(self) -> LoadedSettings:
        """The settings with the origin of each."""
        if self._loaded is None:
            self._loaded = self._load()
            if self.options.store is not None:
                self.warn_of_password("--store", self.options.store, "JOBLENS_STORE")
        return self._loaded

    def warn_of_password(self, option: str, store: str, variable: str) -> None:
        """Warns about a password in a store URL given on the command line."""
        from joblens.model.settings import has_password

        if has_password(store):
            self.warn(
                f"other users of this machine can read the password in {option}; use {variable} instead"
            )

    def warn_of_broker(self, broker: str | None) -> None:
        """Warns about a password in a broker URL; None: the option was not given."""
        if broker is not None:
            from joblens.app.queue.notifiers import broker_of
            from joblens.app.queue.worker_service import warn_of_password

            warn_of_password(broker, broker_of(self.settings), self.warn)

    @contextmanager
    def loaded_as_far_as_possible(self) -> Iterator[LoadedSettings]:
        """Yields the valid settings; raises the error about invalid ones at the end."""
        from joblens.app.wiring.settings import config_error

        loaded = self._load(skip_invalid=True)
        yield loaded
        if loaded.problems:
            raise config_error(loaded.problems)

    def _load(self, *, skip_invalid: bool = False) -> LoadedSettings:
        from joblens.app.wiring.settings import load_settings

        store = self.options.store
        overrides = self._overrides if store is None else {**self._overrides, "store.url": store}
        return load_settings(
            config=self.options.config, overrides=overrides, skip_invalid=skip_invalid, warn=self.warn
        )

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def server_url(self) -> str | None:
        """The server to use in place of a store. An option overrides the environment."""
        from joblens.model.errors import InputError

        if self.options.server is not None and self.options.store is not None:
            raise InputError("--server and --store cannot be combined", hint="give one of them")
        if self.options.server is not None or self.options.store is not None:
            return self.options.server
        return os.environ.get(_SERVER) or None

    def refuse_server(self, command: str) -> None:
        """Raises InputError if a server was chosen: the command needs the store itself, or its machine."""
        if self.server_url is not None:
            from joblens.model.errors import InputError

            raise InputError(
                f"joblens {command} does not work on a server",
                hint=f"run it on the machine with the store, without --server and {_SERVER}",
            )

    @property
    def remote(self) -> RemoteStore | None:
        """The store behind the chosen server; None: there is no server between."""
        if self.server_url is None:
            return None
        from joblens.app.wiring.server_connection import ServerStoreConnection

        connection = self.connection
        assert isinstance(connection, ServerStoreConnection)
        return connection.remote

    @property
    def drivers(self) -> Drivers:
        """The drivers of runs on the store's machine."""
        if self.server_url is not None:
            return self.store  # type: ignore[return-value]  # a remote store knows them
        from joblens.app.runs.control import LocalDrivers

        return LocalDrivers(self.settings)

    def open_output(self, record: Record, stream: str) -> Output:
        """Opens output of a job. Raises InputError that says why there is none."""
        from joblens.app.jobs.logs import check_output, open_output

        remote = self.remote
        if remote is None:
            return open_output(record, stream)
        from joblens.stores.remote import RemoteLog

        check_output(record)
        return RemoteLog(remote.server, record, stream, self.note)

    @property
    def connection(self) -> StoreConnection:
        if self._connection is None and self.server_url is not None:
            from joblens.app.wiring.server_connection import ServerStoreConnection

            self._connection = ServerStoreConnection(
                self.server_url, self.settings, lambda text: self.note(f"joblens: {text}")
            )
        if self._connection is None:
            from joblens.app.wiring.drivers import AGENT_ANSWER_S, READER_ANSWER_S, StoreConnection

            answer_s = AGENT_ANSWER_S if self._drives_runs else READER_ANSWER_S
            self._connection = StoreConnection(self.settings, self._warn_of_store, answer_s)
        return self._connection

    def _warn_of_store(self, text: str) -> None:
        if self._log is None:
            self.warn(text)
        else:
            self._log.warn(text)

    @property
    def store(self) -> Store:
        """The store, for reading; raises StoreError if it does not exist."""
        return self.connection.to_read()

    @property
    def writable_store(self) -> Store:
        """The store, created if it does not exist."""
        return self.connection.to_write(must_open=False)

    @property
    def journaled_store(self) -> Store | None:
        """The connection for recording jobs, if this command has already opened one."""
        return None if self._connection is None else self._connection.journaled

    @property
    def store_if_exists(self) -> Store | None:
        """The store for reading, even if it is read-only; None if it does not exist."""
        return self.connection.if_exists()

    def own_runs(self) -> None:
        """This command drives runs over its own connection to the store: a silent server is given up as
        early as in other processes that run jobs. Call it before the store is opened."""
        assert self._drives_runs or self._connection is None
        self._drives_runs = True

    @property
    def runs(self) -> Runs:
        from joblens.app.driving.start import Runs

        return Runs(self.settings, self.options.config, self.connection, self.warn, self._open_log)

    def _open_log(self) -> OwnLog:
        if self._log is None:
            from joblens.app.wiring.agent_context import OwnLog

            self._log = OwnLog(self.settings.logs)
        return self._log

    @property
    def current_store(self) -> Store:
        """The store, after recovering jobs whose owner has died."""
        self.recover_orphans()
        return self.store

    def recover_orphans(self) -> None:
        """Records the end of jobs whose owner has died."""
        if self.server_url is not None:
            self.store.recover()  # type: ignore[attr-defined]  # of a remote store
            return
        from joblens.app.queue.recovery import recover_dead_owners
        from joblens.model.errors import SupervisorError

        try:
            recover_dead_owners(self.store, self.settings, self.options.config, self.warn)
        except SupervisorError as error:
            self.warn(str(error))

    def restart_embedded_worker(self) -> None:
        """Recovers orphans, and restarts the worker that joblens started for this queue if it died."""
        from joblens.app.queue.notifiers import remind_workers

        self.recover_orphans()
        if self.server_url is not None:
            return  # the server did both
        remind_workers(self.settings, self.queue_store, self.options.config)

    @property
    def queue_store(self) -> QueueStore:
        """The store as workers see it."""
        return self.store  # type: ignore[return-value]  # every store is both

    @property
    def queue_writer(self) -> QueueStore:
        """The store for changes that must be in it when the command ends; created if it does not exist."""
        return self.connection.to_write()

    def wait_for_store(self, timeout_s: float | None = None) -> None:
        """Retries from now on while the store is unreachable, with a notice; until the time-out, if any."""
        self.connection.wait_for_store(lambda text: self.note(f"joblens: {text}"), timeout_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def is_interactive(self) -> bool:
        """Whether a user can answer a question."""
        return self.is_terminal and sys.stdin.isatty() and not self.json

    @property
    def color(self) -> bool:
        return (
            self.is_terminal
            and not self.options.no_color
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    @property
    def error_color(self) -> bool:
        """Whether standard error is a terminal that gets colors."""
        return os.isatty(2) and not self.options.no_color and not os.environ.get("NO_COLOR")

    @property
    def palette(self) -> Palette:
        from joblens.views.text.style import Palette

        return Palette(is_on=self.color)

    @property
    def width(self) -> int:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and int(columns) > 0:
            return int(columns)
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_UNKNOWN
        except (OSError, ValueError):
            return _WIDTH_UNKNOWN

    @property
    def table_width(self) -> int:
        """Width of tables; unlimited on a pipe, whose readers need every column."""
        return self.width if self.is_terminal else _NO_EDGE

    def write(self, text: str) -> None:
        """Writes text as it is, without adding a line end."""
        sys.stdout.write(text)

    def write_lines(self, lines: list[str]) -> None:
        self.write("".join(f"{line}\n" for line in lines))

    def write_json(self, document: Any) -> None:
        """Writes the one document of a command: indented on a terminal, else on one line."""
        encoded = json.encode(document)
        if self.is_terminal:
            encoded = json.format(encoded, indent=2)
        self.write(encoded.decode() + "\n")

    def write_json_line(self, document: Any) -> None:
        """Writes one object of a stream and flushes it."""
        self.write(json.encode(document).decode() + "\n")
        self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def own_jobs(self) -> None:
        """Protects the exit code of a job from now on: failing to write output is only a warning, and
        unread output causes no delay."""
        from joblens.files.standard_streams import guard_standard_output, wait_for_readers

        guard_standard_output(self.warn)
        wait_for_readers(may_wait=False)

    def warn(self, text: str) -> None:
        self.note(f"joblens: warning: {text}")

    def note(self, text: str) -> None:
        """Writes to stderr, so that pipes stay clean."""
        from joblens.views.text.style import clean_text

        sys.stderr.write(f"{clean_text(text)}\n")
