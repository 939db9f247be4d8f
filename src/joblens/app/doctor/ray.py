"""Whether runs can be given to Ray, and which cluster that would be."""

import importlib.util
import os

from joblens.model.errors import how_to_install
from joblens.model.jobs.capability import Capability
from joblens.model.settings import Settings


def ray_capability(settings: Settings) -> Capability:
    """A cluster is only named: to ask it would take as long as joining it."""
    if importlib.util.find_spec("ray") is None:
        reason = "Ray is not installed here"
        return Capability(
            area="clusters",
            name="ray",
            available=False,
            applies=False,
            reason=f"{reason}: {how_to_install('ray')}",
        )
    from importlib.metadata import version

    address = settings.ray.address or os.environ.get("RAY_ADDRESS", "")
    where = f"the cluster at {address} (not asked)" if address else "one of its own on this machine"
    return Capability(
        area="clusters", name="ray", available=True, mechanism=f"Ray {version('ray')}; run takes {where}"
    )
