"""The server that a command uses in place of a store: its URL, token and certificates."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from joblens.app.wiring.drivers import StoreConnection, Warn, user_config_path
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joblens.model.settings import Settings
    from joblens.ports.store import Store
    from joblens.stores.remote import RemoteStore
    from joblens.stores.wrappers.journal import JournaledStore

SERVER_VARIABLE = "JOBLENS_SERVER"
TOKEN_VARIABLE = "JOBLENS_TOKEN"  # noqa: S105 - a name
_LONGEST_TOKEN = 4096


def find_token(settings: Settings, env: Mapping[str, str] = os.environ) -> str:
    """Returns the token of the environment, else that of the file; '': there is none, as for the owner on the
    server's socket. Raises InputError for a file that others can read."""
    if env.get(TOKEN_VARIABLE):
        return env[TOKEN_VARIABLE].strip()
    default = os.path.join(os.path.dirname(user_config_path(env)), "token")
    path = settings.client.token_file or default
    try:
        with open(path, encoding="ascii") as file:
            about = os.fstat(file.fileno())
            if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o077:
                raise InputError(
                    f"{path}: other users can read or write this token", hint=f"chmod 600 {path}"
                )
            return file.read(_LONGEST_TOKEN).strip()
    except FileNotFoundError:
        if settings.client.token_file is None:
            return ""
        raise InputError(f"{path}: there is no such token file", hint="see client.token_file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is not a token", hint="joblens token create prints one") from error
    except OSError as error:
        raise InputError(f"{path}: the token cannot be read: {error.strerror}") from error


def open_server(url: str, settings: Settings, note: Warn) -> RemoteStore:
    """Connects at the first question."""
    from joblens.stores.remote import RemoteStore, ServerConnection, TlsFiles

    client = settings.client
    tls = TlsFiles(ca=client.ca or "", cert=client.cert or "", key=client.key or "")
    return RemoteStore(ServerConnection(url, find_token(settings), tls=tls, note=note))


class ServerStoreConnection(StoreConnection):
    """The connection of a command to the store behind a server."""

    def __init__(self, url: str, settings: Settings, note: Warn) -> None:
        super().__init__(settings, note)
        self.remote = open_server(url, settings, note)
        self._store = self.remote

    def if_exists(self) -> Store | None:
        return self.to_read()

    def to_write(self, *, must_open: bool = True) -> JournaledStore:
        raise InputError(
            "this changes the store itself, which a server does not do",
            hint=f"use the machine with the store, without --server and {SERVER_VARIABLE}",
        )
