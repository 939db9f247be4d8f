"""How jobs of a run find the store that the run is in."""

import os
from collections.abc import Mapping

from joblens.app.wiring.drivers import store_address, store_name
from joblens.model.settings import Settings


def store_for_jobs(settings: Settings, *, is_elsewhere: bool, environ: Mapping[str, str] = os.environ) -> str:
    """With the password only where they have it in their environment anyway, since whoever started the run
    has set it there himself; never where others run them. One in their user's files they find themselves."""
    url = store_address(settings)
    has_it_anyway = url in (environ.get("JOBLENS_STORE"), environ.get("JOBLENS_STORE_URL"))
    return url if has_it_anyway and not is_elsewhere else store_name(settings)
