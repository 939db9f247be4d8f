"""Own Ray cluster: started for one run, with a private folder."""

import contextlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, MutableMapping

_PREFIX = "jlray-"
_PARENT = "/tmp"  # noqa: S108 - a private folder in it: paths of sockets have to be short
_RAYS, _TOKEN = "r", "token"
_TRIES, _PAUSE_S = 20, 0.1
CHANGED = "JOBLENS_RAY_CHANGED"  # original values of variables that were changed for such a Ray, for its jobs


def folder_note(socket: str) -> str:
    """Returns the path of the note of the proxy at this socket."""
    return f"{socket}.folder"


class OwnFolder:
    """Private folder of a Ray cluster, whose files in it are readable by all. The file `noted_at` names it,
    so that it can be removed after its proxy was killed."""

    def __init__(self, noted_at: str) -> None:
        self._noted_at = noted_at
        remove_noted(noted_at)
        self._path = tempfile.mkdtemp(prefix=_PREFIX, dir=_PARENT)
        with open(noted_at, "w") as file:
            file.write(self._path)
        with open(self._token, "w", opener=_private) as file:
            file.write(secrets.token_hex(32))

    @property
    def _token(self) -> str:
        return os.path.join(self._path, _TOKEN)

    @property
    def for_ray(self) -> str:
        return os.path.join(self._path, _RAYS)

    def set_up(self, env: MutableMapping[str, str]) -> None:
        """Prepares the environment before Ray is imported: it listens only at this machine's own address
        (as it does by itself on systems without clusters of several machines), and only for holders of the
        token."""
        wanted = {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self._token,
            "RAY_AUTH_TOKEN": None,
        }
        env[CHANGED] = json.dumps({name: env.get(name) for name in wanted})
        for name, value in wanted.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value

    def remove(self) -> None:
        remove_noted(self._noted_at)


def without_own_changes(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the changes of `set_up`: a job may use a Ray of its own."""
    left = dict(env)
    with contextlib.suppress(ValueError, AttributeError):
        for name, value in json.loads(left.pop(CHANGED, "{}")).items():
            left.pop(name, None)
            if isinstance(value, str):
                left[name] = value
    return left


def remove_noted(noted_at: str) -> None:
    """Removes the folder, with retries: processes of Ray may still write into it while they end."""
    with contextlib.suppress(OSError):
        with open(noted_at) as file:
            path = file.read()
        if _is_ours(path):
            for _ in range(_TRIES):
                shutil.rmtree(path, ignore_errors=True)
                if not os.path.lexists(path):
                    break
                time.sleep(_PAUSE_S)
        os.unlink(noted_at)


def _is_ours(path: str) -> bool:
    found = os.lstat(path)
    is_named_so = os.path.dirname(path) == _PARENT and os.path.basename(path).startswith(_PREFIX)
    return is_named_so and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_CLOEXEC, 0o600)
