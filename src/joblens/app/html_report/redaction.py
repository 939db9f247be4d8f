"""Redaction for readers elsewhere: secrets in every text of a report, and paths on request.

Records are stored without secrets, but output is not, and records from other systems or earlier versions may
have some."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from joblens.model.jobs.job import Record
from joblens.model.redaction.secrets import (
    NO_SECRETS,
    REDACTED,
    SecretValues,
    redact_argv,
    redact_job,
    redact_params,
    redact_text,
    secret_values,
)

HIDDEN_FOLDER = "[…]"  # in place of the folders of a path
# Absolute paths with at least one folder. A URL's path is none: something precedes its slash.
_PATH = re.compile(r"(?<![\w.~/\]…-])(?:file://)?(?:~\w*)?(?:/[^\s/'\"<>|;,:()\[\]{}]+)+/?")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[^\s\\'\"<>|;,:()]+\\)*[^\s\\'\"<>|;,:()]*")
_NUMBERS = frozenset({int, float, bool, type(None)})
_MOST_KNOWN = 5000  # texts
_NAMED = ("params", "seeds", "env")  # values whose names tell whether they are secret


class Redactor:
    """Removes secrets, and with `hides_paths` the folders of paths: the name of a file stays."""

    def __init__(self, *, hides_paths: bool, environ: Mapping[str, str] = MappingProxyType({})) -> None:
        """`environ`: values of secret variables in it are hidden wherever they occur. Records have only the
        names of theirs."""
        self._hides_paths = hides_paths
        self._environ = environ
        self._inherited = secret_values(environ)
        self._folders: tuple[str, ...] = ()
        self._known: dict[str, str] = {}

    def know_folders(self, folders: Iterable[str]) -> None:
        """Folders are hidden as a whole, also if they contain spaces. The longest are tried first."""
        known = {folder.rstrip("/") for folder in folders if len(folder.strip("/")) > 2}
        ordered = tuple(sorted(known, key=lambda folder: (-len(folder), folder)))
        if ordered != self._folders:
            self._folders = ordered
            self._known.clear()

    def record(self, record: Record) -> Record:
        return replace(record, job=redact_job(record.job))

    def secrets_of(self, record: Record) -> SecretValues:
        """Returns values that are secret wherever they occur: in output, messages, names."""
        job = record.job
        found = secret_values({**job.params, **job.env})
        hidden = redact_argv(job.argv)
        words = {word: REDACTED for word, shown in zip(job.argv, hidden, strict=True) if shown == REDACTED}
        if words:
            found |= SecretValues(words)
        return found | self._inherited if found else self._inherited

    def unknown_secrets(self, record: Record) -> list[str]:
        """Returns names of parameters and variables whose values may be in the output unrecognized."""
        known = self._environ.keys()
        names = [name for name, value in record.job.params.items() if value == REDACTED]
        return names + [
            name for name, value in record.job.env.items() if value == REDACTED and name not in known
        ]

    def values(self, value: Any, secrets: SecretValues = NO_SECRETS) -> Any:
        """Redacts lists, mappings and texts; returns numbers as they are."""
        return self._value(value, secrets.hide if secrets else None)

    def _value(self, value: Any, hide: Callable[[Any], Any] | None) -> Any:
        if isinstance(value, str):
            return self.text(value if hide is None else hide(value))
        if isinstance(value, Mapping):
            return {
                self._path_free(str(key)): self._value(
                    redact_params(inner) if key in _NAMED and isinstance(inner, Mapping) else inner, hide
                )
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            if _NUMBERS.issuperset(map(type, value)):
                return value  # a curve
            return [self._value(inner, hide) for inner in value]
        return value

    def text(self, text: str) -> str:
        """Most texts are those of the job before: names of fields, hosts, sources."""
        found = self._known.get(text)
        if found is None:
            found = self._path_free(_secret_free(text))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    def _path_free(self, text: str) -> str:
        if not self._hides_paths or ("/" not in text and "\\" not in text):
            return text
        for folder in self._folders:
            text = text.replace(folder + "/", HIDDEN_FOLDER + "/")
            if text == folder or text.endswith(folder):
                text = text.removesuffix(folder) + HIDDEN_FOLDER
        return _WINDOWS_PATH.sub(_without_windows_folders, _PATH.sub(_without_folders, text))


def _secret_free(text: str) -> str:
    """Colours between a name and its secret do not save the secret: then the line loses them."""
    found = redact_text(text)
    if "\x1b" in text:
        plain = _COLOUR.sub("", found)
        hidden = redact_text(plain)
        return found if hidden == plain else hidden
    return found


def _without_folders(found: re.Match[str]) -> str:
    path = found[0]
    folder, _, name = path.rstrip("/").rpartition("/")
    if not folder:
        return path  # /tmp, /dev: the same everywhere
    return f"{HIDDEN_FOLDER}/{name}"


def _without_windows_folders(found: re.Match[str]) -> str:
    return f"{HIDDEN_FOLDER}\\{found[0].rpartition(chr(92))[2]}"
