"""How a process in the background learns which store it works for. What it was started with is for all to
read, so a password of the store's URL travels in its environment."""

import os
from collections.abc import Mapping

from joblens.app.drivers import store_name
from joblens.model.settings import Settings
from joblens.model.store_url import has_password, without_password

_VARIABLE = "JOBLENS_STORE"


def store_arguments(settings: Settings) -> list[str]:
    return ["--store", store_name(settings)]


def store_environment(settings: Settings) -> dict[str, str]:
    """To be added to what it has otherwise."""
    url = settings.store.url
    return {_VARIABLE: url} if url is not None and has_password(url) else {}


def store_of_arguments(name: str, env: Mapping[str, str] = os.environ) -> str:
    """What `store_arguments` said, with the password again."""
    url = env.get(_VARIABLE, "")
    return url if without_password(url) == name else name
