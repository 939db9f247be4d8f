"""Which cluster of Ray is meant."""

import re
from collections.abc import Mapping

from joblens.model.errors import InputError

VARIABLE = "RAY_ADDRESS"
_OWN = "local"  # as Ray has it: one of its own, whatever else is set
_ANY = "auto"
_CLIENT = "ray://"
_HINT = "give HOST:PORT of the cluster's head (as for ray start --address), auto, or local"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")


def meant_address(given: str | None, configured: str | None, environ: Mapping[str, str]) -> str:
    """'': one that is started for the run. Raises InputError for what cannot be one."""
    sources = (
        ("--address", given),
        ("ray.address", configured),
        (VARIABLE, environ.get(VARIABLE)),
    )
    where, address = next(((where, text) for where, text in sources if text), ("", _OWN))
    if address == _OWN:
        return ""
    if address.startswith(_CLIENT):
        raise InputError(
            f"{where}: {address} is an address of Ray's client, by which jobs cannot be followed", hint=_HINT
        )
    match = _ADDRESS.fullmatch(address)
    if address != _ANY and (match is None or not 0 < int(match[2]) < 2**16):
        raise InputError(f"{where}: '{address}' is no address of a Ray cluster", hint=_HINT)
    return address
