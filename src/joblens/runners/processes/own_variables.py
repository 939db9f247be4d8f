"""joblens' own variables in an environment that others get to see: jobs of a worker, a cluster that keeps
what was handed in."""

from collections.abc import MutableMapping

from joblens.model.errors import InputError
from joblens.model.values.store_url import has_password, without_password
from joblens.runners.celery.broker_url import parse_broker

_STORES = ("JOBLENS_STORE", "JOBLENS_STORE_URL", "JOBLENS_STORE_FROM_PARENT")
_BROKER = "JOBLENS_QUEUE_BROKER"


def leave_out_passwords(env: MutableMapping[str, str]) -> None:
    """Of the store and the broker; where they are stays."""
    for name in _STORES:
        if has_password(env.get(name, "")):
            env[name] = without_password(env[name])
    try:
        broker = parse_broker(env.get(_BROKER, ""), "/")
    except InputError:
        del env[_BROKER]  # nobody can tell what of it is a password
        return
    if broker.secrets:
        env[_BROKER] = broker.shown
