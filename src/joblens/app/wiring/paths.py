"""Where joblens keeps things when nobody says otherwise: the XDG base directories."""

import os
from collections.abc import Mapping

SYSTEM_CONFIG = "/etc/joblens/joblens.yml"
CONFIG_NAME = "joblens.yml"


def _base(env: Mapping[str, str], variable: str, *below_home: str) -> str:
    """An XDG directory; the specification says to ignore relative paths in its variables."""
    given = env.get(variable, "")
    if given.startswith("/"):
        return given
    return os.path.join(home_dir(env), *below_home)


def home_dir(env: Mapping[str, str] = os.environ) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def user_config_path(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_CONFIG_HOME", ".config"), "joblens", CONFIG_NAME)


def default_store_path(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_DATA_HOME", ".local", "share"), "joblens", "joblens.db")


def state_dir(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(_base(env, "XDG_STATE_HOME", ".local", "state"), "joblens")


def default_journal_dir(env: Mapping[str, str] = os.environ) -> str:
    return os.path.join(state_dir(env), "journal")


def store_home(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """The folder for what is kept beside a store: its file's own, or for a server one of this machine."""
    if _is_file(store_name):
        return os.path.dirname(os.path.abspath(store_name))
    return os.path.join(os.path.dirname(default_store_path(env)), "stores", _mark_of(store_name))


def logs_dir(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """What jobs printed, beside the store that remembers them."""
    return os.path.join(store_home(store_name, env), "logs")


def spool_dir(store_name: str, env: Mapping[str, str] = os.environ) -> str:
    """What is under way for one store: payloads of queued jobs, outcomes that launchers left, the
    supervisor's lock. On disk, not in the login session's directory, which goes away at logout."""
    return os.path.join(state_dir(env), "spool", _mark_of(store_name))


def _is_file(store_name: str) -> bool:
    return "://" not in store_name


def _mark_of(store_name: str) -> str:
    """Short enough for a file name, and another for every store."""
    import zlib

    whole = os.path.abspath(store_name) if _is_file(store_name) else store_name
    name = whole.encode("utf-8", "surrogateescape")
    return f"{zlib.crc32(name):08x}{zlib.adler32(name):08x}"
