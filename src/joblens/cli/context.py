"""What a command works with: settings loaded once, the store opened once, and where output goes."""

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from joblens.model.settings import Settings
from joblens.ports.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joblens.app.wiring.settings import LoadedSettings
    from joblens.ports.store import QueueStore
    from joblens.views.text.style import Palette

_WIDTH_UNKNOWN = 80
_NO_EDGE = 1 << 20


class Globals(Struct, frozen=True, kw_only=True):
    """Options that may stand before or after the command."""

    store: str | None = None
    config: str | None = None
    json: bool = False
    no_color: bool = False


def with_given(before: Globals, given: dict[str, Any]) -> Globals:
    """What stands nearer to the command's end wins. `given` has the options by their names in the table."""
    format_name = given["global_format"]
    wants_json = before.json if format_name is None else format_name == "json"
    return Globals(
        store=given["global_store"] if given["global_store"] is not None else before.store,
        config=given["global_config"] if given["global_config"] is not None else before.config,
        json=given["global_json"] or wants_json,
        no_color=given["global_no_color"] or before.no_color,
    )


class Session:
    """One call of one command."""

    def __init__(self, options: Globals) -> None:
        self.options = options
        self._loaded: LoadedSettings | None = None
        self._store: Store | None = None
        self._overrides: dict[str, str] = {}
        for stream in (sys.stdout, sys.stderr):
            # job names may hold bytes that are no text; showing them must never be what fails
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    @property
    def json(self) -> bool:
        return self.options.json

    def override(self, setting: str, text: str | None) -> None:
        """An option of the command stands for that setting; None: it was not given. Before anything is
        loaded."""
        if text is not None:
            assert self._loaded is None
            self._overrides[setting] = text

    @property
    def loaded(self) -> "LoadedSettings":
        """The settings with the origin of each."""
        if self._loaded is None:
            self._loaded = self._load()
            if self.options.store is not None:
                self.warn_of_password("--store", self.options.store, "JOBLENS_STORE")
        return self._loaded

    def warn_of_password(self, option: str, store: str, variable: str) -> None:
        """Of a store that was named on the command line."""
        from joblens.model.values.store_url import has_password

        if has_password(store):
            self.warn(f"everybody on this machine can read the password in {option}: use {variable} instead")

    def warn_of_broker(self, given: str | None) -> None:
        """The same of a broker; None: it was not given as an option."""
        if given is not None:
            from joblens.app.queue.notifiers import broker_of
            from joblens.app.queue.worker_service import warn_of_password

            warn_of_password(given, broker_of(self.settings), self.warn)

    @contextmanager
    def loaded_as_far_as_possible(self) -> "Iterator[LoadedSettings]":
        """For showing what can be shown; what is wrong with the settings is the error in the end."""
        from joblens.app.wiring.settings import config_error

        loaded = self._load(leave_out_bad=True)
        yield loaded
        if loaded.problems:
            raise config_error(loaded.problems)

    def _load(self, *, leave_out_bad: bool = False) -> "LoadedSettings":
        from joblens.app.wiring.settings import load_settings

        store = self.options.store
        overrides = self._overrides if store is None else {**self._overrides, "store.url": store}
        return load_settings(
            config=self.options.config, overrides=overrides, leave_out_bad=leave_out_bad, warn=self.warn
        )

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def store(self) -> Store:
        """For reading: one that was named but is not there is an error."""
        if self._store is None:
            from joblens.app.wiring.drivers import open_store_to_read

            self._store = open_store_to_read(self.settings, self.warn)
        return self._store

    @property
    def store_to_fill(self) -> Store:
        """It is made when it is not there."""
        if self._store is None:
            from joblens.app.wiring.drivers import open_store

            self._store = open_store(self.settings, self.warn)
        return self._store

    @property
    def store_if_exists(self) -> Store | None:
        """For what may be known already: read as it is, also where it may not be written. None: there is
        none, and none is made."""
        from joblens.app.wiring.drivers import store_is_there

        return self.store if store_is_there(self.settings) else None

    @property
    def current_store(self) -> Store:
        """The store after jobs whose owner has died were brought to their end."""
        self.care()
        return self.store

    def care(self) -> None:
        from joblens.app.queue.recovery import recover_dead_owners
        from joblens.model.errors import SupervisorError

        try:
            recover_dead_owners(self.store, self.settings, self.options.config, self.warn)
        except SupervisorError as error:
            self.warn(str(error))

    def care_for_queue(self) -> None:
        """The same while somebody waits for a job on a queue: a worker that was started for it and died is
        started again."""
        from joblens.app.queue.notifiers import remind_workers

        self.care()
        remind_workers(self.settings, self.queue_store, self.options.config)

    @property
    def queue_store(self) -> "QueueStore":
        """The store as workers see it."""
        return self.store  # type: ignore[return-value]  # every store is both

    def wait_for_store(self, timeout_s: float | None = None) -> None:
        """From now on one that is away is asked again and again, which is told; with a time, not beyond."""
        from joblens.app.wiring.drivers import patient_store

        self._store = patient_store(self.store, lambda text: self.note(f"joblens: {text}"), timeout_s)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    @property
    def is_interactive(self) -> bool:
        """Someone is there to answer a question."""
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
    def palette(self) -> "Palette":
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
        """For tables whose readers count on every column: a pipe has no edge."""
        return self.width if self.is_terminal else _NO_EDGE

    def write(self, text: str) -> None:
        """Text that ends its own lines."""
        sys.stdout.write(text)

    def write_lines(self, lines: list[str]) -> None:
        self.write("".join(f"{line}\n" for line in lines))

    def write_json(self, document: Any) -> None:
        """The one document of a command; indented for people, one line for programs."""
        encoded = json.encode(document)
        if self.is_terminal:
            encoded = json.format(encoded, indent=2)
        self.write(encoded.decode() + "\n")

    def write_json_line(self, document: Any) -> None:
        """One object of a stream, out at once."""
        self.write(json.encode(document).decode() + "\n")
        self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def own_jobs(self) -> None:
        """From now on the exit code is a job's: output that cannot be written is a warning, and output that
        nobody reads delays nothing."""
        from joblens.views.text.standard_streams import guard_standard_output, wait_for_readers

        guard_standard_output(self.warn)
        wait_for_readers(may_wait=False)

    def warn(self, text: str) -> None:
        self.note(f"joblens: warning: {text}")

    def note(self, text: str) -> None:
        """Something beside the output: goes to stderr so that pipes stay clean."""
        from joblens.views.text.style import clean_text

        sys.stderr.write(f"{clean_text(text)}\n")
