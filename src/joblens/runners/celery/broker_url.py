"""Broker URL as users write it, and removal of passwords of broker and store from an environment."""

import os
import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct, field

from joblens.model.errors import InputError
from joblens.model.redaction.names import is_secret_name
from joblens.model.redaction.secrets import REDACTED
from joblens.model.settings import has_password, without_password
from joblens.model.values.labels import queue_and_label

FORMS = "redis://HOST:PORT/DB, rediss://…, redis+socket:///PATH, amqp://HOST:PORT/VHOST, amqps://… or /FOLDER"
_KINDS = {
    "redis": "redis",
    "rediss": "redis",
    "redis+socket": "redis",
    "unix": "redis",
    "sentinel": "redis",
    "amqp": "amqp",
    "amqps": "amqp",
    "pyamqp": "amqp",
    "file": "folder",
}
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d+(/.*)?")


class Broker(Struct, frozen=True, kw_only=True):
    kind: str  # redis, amqp or folder
    shown: str  # without user and password: for messages, records and the table of workers
    url: str  # complete, for Celery
    folder: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # must not appear in any message

    def __repr__(self) -> str:
        return f"Broker({self.shown!r})"

    def without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def parse_broker(text: str | None, default_folder: str) -> Broker:
    """Returns the broker of a URL or folder. '' or None: the default folder. Raises InputError."""
    text = (text or "").strip()
    if not text:
        return _folder(default_folder)
    if "://" not in text:
        return _folder(_path(text))
    try:
        parts = urlsplit(text.split(";", 1)[0])
        port = parts.port
    except ValueError as error:
        raise InputError(f"the broker's URL cannot be read: {_plain(error)}", hint=_hint()) from None
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        raise InputError(f"no broker is known by {parts.scheme}://", hint=_hint())
    if kind == "folder":
        if parts.netloc not in ("", "localhost"):
            raise InputError("a directory's URL has no host: file:///FOLDER", hint=_hint())
        return _folder(_path(unquote(parts.path)))
    secrets = tuple(sorted({word for word in _secrets(text) if word}, key=len, reverse=True))
    if parts.scheme == "sentinel":
        return _sentinel(text, secrets)
    if parts.scheme in ("redis+socket", "unix"):
        return _redis_socket(parts, secrets)
    if not parts.hostname:
        raise InputError(f"the broker's URL names no host: {_shown(parts, port)}", hint=_hint())
    if kind == "redis" and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise InputError(
            f"a Redis database is a number: {_shown(parts, port)}", hint=f"{parts.scheme}://HOST:PORT/0"
        )
    if parts.scheme == "rediss":
        text = _with_certificate_check(parts)
    return Broker(kind=kind, shown=_shown(parts, port), url=text, secrets=secrets)


def recorded_broker(text: str) -> str:
    """Returns the URL to store with a run: '***' in place of passwords. Raises InputError."""
    broker = parse_broker(text, "")
    if broker.kind == "folder":
        return broker.folder
    return ";".join(_without_password(one) for one in text.strip().split(";"))


def broker_of_run(recorded: str, configured: str | None) -> str:
    """Returns the URL to connect to. Passwords are those of the configured broker of the same host and user.
    Raises InputError if the configured broker is another one."""
    if REDACTED not in recorded:
        return recorded
    if configured is not None and "://" in configured:
        if recorded_broker(configured) == recorded:
            return configured
        found = _with_passwords(recorded, configured)
        if found is not None:
            return found
    named = recorded.replace(f":{REDACTED}@", "@").replace("://@", "://")
    raise InputError(
        f"the run uses the broker {named}, and its password is not recorded with the run",
        hint="set queue.broker or JOBLENS_QUEUE_BROKER to its URL with the password, or give --broker URL",
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user:
        user = f"{user.partition(':')[0]}:{REDACTED}"
    query = [_without_value(one) for one in parts.query.split("&")] if parts.query else []
    return _joined(parts._replace(netloc=f"{user}{at}{host}", query="&".join(query)))


def _joined(parts: SplitResult) -> str:
    """Returns the URL. geturl would omit the slashes of redis+socket:///PATH."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"


def _without_value(pair: str) -> str:
    name, mark, _ = pair.partition("=")
    return f"{name}{mark}{REDACTED}" if _is_secret_key(name) else pair


def _is_secret_key(name: str) -> bool:
    return "pass" in name.lower() or is_secret_name(name)


def _with_passwords(recorded: str, configured: str) -> str | None:
    """Returns None if the configured broker is of another host or user, or has no password either."""
    wanted, known = recorded.split(";"), configured.strip().split(";")
    if len(wanted) != len(known):
        return None
    filled = [_filled(one, other) for one, other in zip(wanted, known, strict=True)]
    return None if None in filled else ";".join(one for one in filled if one is not None)


def _filled(recorded: str, configured: str) -> str | None:
    ours, theirs = urlsplit(recorded), urlsplit(configured)
    same = ("scheme", "hostname", "port", "username")
    if any(getattr(ours, name) != getattr(theirs, name) for name in same):
        return None
    values = dict(pair.partition("=")[::2] for pair in theirs.query.split("&"))
    query = [
        f"{name}={values.get(name, REDACTED)}" if value == REDACTED else f"{name}{mark}{value}"
        for name, mark, value in (pair.partition("=") for pair in ours.query.split("&"))
    ]
    netloc = theirs.netloc if ours.password is not None else ours.netloc
    filled = _joined(ours._replace(netloc=netloc, query="&".join(query)))
    has_password = ours.password is None or theirs.password is not None
    return filled if has_password and REDACTED not in filled else None


def check_queue(name: str) -> str:
    """Returns the name if it can name files and keys. Raises InputError."""
    if not _QUEUE_NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be the name of a queue",
            hint="letters, digits, '_', '-' and '.', at most 100, beginning with a letter, a digit or '_'",
        )
    return name


def check_route(name: str) -> str:
    """Checks a queue, or a queue and a label (model.values.labels)."""
    check_queue(queue_and_label(name)[0])
    return name


def _hint() -> str:
    return f"a broker is {FORMS}"


def _plain(error: ValueError) -> str:
    """Returns the reason without the message of the standard library, which quotes parts of the URL: perhaps
    a password."""
    return "the port is not a number from 0 to 65535" if "ort" in str(error) else "it is not a URL"


def _path(text: str) -> str:
    if _HOST_AND_PORT.fullmatch(text):
        raise InputError(f"{text} names no broker by itself", hint=f"redis://{text} or amqp://{text}")
    if os.sep not in text and text not in (".", "..", "~"):
        raise InputError(f"{text!r} is no broker", hint=f"{_hint()}; a directory beside you is ./{text}")
    return os.path.abspath(os.path.expanduser(text))


def _folder(path: str) -> Broker:
    if os.path.exists(path) and not os.path.isdir(path):
        raise InputError(f"{path} is not a directory", hint="messages are files: name a directory for them")
    return Broker(kind="folder", shown=path, url="joblens-folder://", folder=path)


def _redis_socket(parts: SplitResult, secrets: tuple[str, ...]) -> Broker:
    path = unquote(parts.path)
    if parts.hostname or path in ("", "/"):
        raise InputError(
            "the URL of a Redis socket has three slashes and a path", hint="redis+socket:///run/redis.sock"
        )
    query = dict(parse_qsl(parts.query))
    database = query.get("virtual_host", query.get("db", "0")).strip("/")
    if not database.isdecimal():
        raise InputError("a Redis database is a number", hint="redis+socket:///PATH?virtual_host=0")
    user = f"{parts.username or ''}:{parts.password}@" if parts.password else ""
    url = f"redis+socket://{user}{quote(path)}?{urlencode({'virtual_host': database})}"
    return Broker(kind="redis", shown=f"redis+socket://{path}", url=url, secrets=secrets)


def _sentinel(text: str, secrets: tuple[str, ...]) -> Broker:
    """Parses sentinel://HOST:PORT/DB;sentinel://HOST:PORT?master_name=NAME"""
    bare, _, query = text.partition("?")
    master = dict(parse_qsl(query)).get("master_name", "")
    if not master:
        raise InputError(
            "a Sentinel's URL has to name the master", hint="sentinel://HOST:26379/0?master_name=NAME"
        )
    hosts = []
    for one in bare.split(";"):
        parts = urlsplit(one)
        if parts.scheme != "sentinel" or not parts.hostname:
            raise InputError("one Sentinel in the broker's URL cannot be read", hint=_hint())
        hosts.append(_shown(parts, parts.port))
    return Broker(
        kind="redis", shown=";".join(hosts), url=bare, options={"master_name": master}, secrets=secrets
    )


def _with_certificate_check(parts: SplitResult) -> str:
    """Adds the option for checking the server's certificate, which Celery requires, unless it is set."""
    query = dict(parse_qsl(parts.query))
    query.setdefault("ssl_cert_reqs", "required")
    return parts._replace(query=urlencode(query)).geturl()


def _shown(parts: SplitResult, port: int | None) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def _secrets(text: str) -> list[str]:
    found = []
    for one in text.split(";"):
        parts = urlsplit(one)
        if parts.password:
            found += [parts.password, unquote(parts.password)]
        found += [value for key, value in parse_qsl(parts.query) if "pass" in key.lower()]
    return found


_STORES = ("JOBLENS_STORE", "JOBLENS_STORE_URL", "JOBLENS_STORE_FROM_PARENT")
_BROKER = "JOBLENS_QUEUE_BROKER"


def remove_passwords(env: MutableMapping[str, str]) -> None:
    """Removes passwords of the store and the broker; their addresses stay."""
    for name in _STORES:
        if has_password(env.get(name, "")):
            env[name] = without_password(env[name])
    try:
        broker = parse_broker(env.get(_BROKER, ""), "/")
    except InputError:
        del env[_BROKER]  # the part that is a password is unknown
        return
    if broker.secrets:
        env[_BROKER] = broker.shown
