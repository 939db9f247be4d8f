"""How a process in the background learns which store it works for. What it was started with is for all to
read, so a password of the store's URL travels in its environment, and goes no further than that process."""

import os
from collections.abc import MutableMapping

from joblens.app.wiring.drivers import store_name
from joblens.model.settings import Settings
from joblens.model.values.store_url import has_password, without_password

_FROM_PARENT = "JOBLENS_STORE_FROM_PARENT"


def store_arguments(settings: Settings) -> list[str]:
    return ["--store", store_name(settings)]


def store_environment(settings: Settings) -> dict[str, str]:
    """To be added to what it has otherwise."""
    url = settings.store.url
    return {_FROM_PARENT: url} if url is not None and has_password(url) else {}


def store_of_arguments(name: str, env: MutableMapping[str, str] = os.environ) -> str:
    """What `store_arguments` said, with the password again. Jobs of this process do not get it."""
    url = env.pop(_FROM_PARENT, "")
    return url if without_password(url) == name else name


def keep_passwords_from_jobs(env: MutableMapping[str, str] = os.environ) -> None:
    """Jobs of a worker have its environment, and may be those of other people."""
    from joblens.runners.processes.own_variables import leave_out_passwords

    leave_out_passwords(env)
