"""A copy of the store as a file, made by the server's own tool."""

import os
import shutil
import subprocess

from psycopg.conninfo import conninfo_to_dict

from joblens.model.errors import InputError, StoreError
from joblens.model.values.store_url import without_password
from joblens.stores.postgres.connection import SCHEMA

_CONNECT_S = "10"
_SAID = 300


def dump(url: str, path: str) -> None:
    """In pg_dump's own format; `pg_restore` reads it. Others go on writing meanwhile."""
    if os.path.lexists(path):
        raise InputError(
            f"{path} exists already", hint="name a new file for the backup, or remove the old one"
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InputError(f"{path}: there is no directory {os.path.dirname(os.path.abspath(path))}")
    tool, shown = shutil.which("pg_dump"), without_password(url)
    if tool is None:
        raise InputError(
            "a backup of a PostgreSQL store is made by pg_dump, which is not there",
            hint="install the PostgreSQL client, or copy it all into a file: joblens store copy "
            f"'{shown}' FILE.db",
        )
    # A name that nobody can have guessed, and laid a link there to a file that would be overwritten.
    partial = f"{os.path.abspath(path)}.{os.urandom(8).hex()}.partial"
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    argv = [
        tool,
        "--format=custom",
        "--no-password",
        f"--schema={SCHEMA}",
        f"--file={partial}",
        f"--dbname={shown}",
    ]
    try:
        ended = subprocess.run(
            argv, env=_environment(url), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if ended.returncode:
            said = " ".join(ended.stderr.decode(errors="replace").split())[-_SAID:]
            raise StoreError(
                f"the store {shown} could not be copied: {said}", hint="check the client's version"
            )
        os.rename(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _environment(url: str) -> dict[str, str]:
    """The password goes this way: what a process was started with is for all to read."""
    password = conninfo_to_dict(url).get("password")
    env = {**os.environ, "PGCONNECT_TIMEOUT": _CONNECT_S}
    return env | {"PGPASSWORD": str(password)} if password else env
