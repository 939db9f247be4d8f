"""Store wrappers forward by name: their own methods must match the port, and all others reach the store."""

import inspect
from collections.abc import Callable

import pytest

from joblens.ports.store import QueueStore
from joblens.stores.wrappers import StoreWrapper
from joblens.stores.wrappers.fenced import FencedStore
from joblens.stores.wrappers.journal import JournaledStore
from joblens.stores.wrappers.retrying import RetryingStore

WRAPPERS = (FencedStore, JournaledStore, RetryingStore)
PORT = {name for name in dir(QueueStore) if not name.startswith("_")}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_overridden_method_takes_what_the_port_says(wrapper: type[StoreWrapper]) -> None:
    overridden = PORT & vars(wrapper).keys()
    assert {"apply", "close"} <= overridden
    for name in overridden:
        own = inspect.signature(getattr(wrapper, name)).parameters
        wanted = inspect.signature(getattr(QueueStore, name)).parameters
        assert [(one.name, one.kind) for one in own.values()] == [
            (one.name, one.kind) for one in wanted.values()
        ], name


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_other_method_of_the_port_is_forwarded(wrapper: type[StoreWrapper]) -> None:
    asked: list[str] = []

    class Inner:
        def __getattr__(self, name: str) -> Callable[[], None]:
            return lambda: asked.append(name)

    class Forwarding(wrapper):  # type: ignore[misc, valid-type]
        _is_away = False

        def __init__(self) -> None: ...

        def _inner(self) -> Inner:
            return Inner()

    forwarded = sorted(PORT - vars(wrapper).keys() - {"url"})
    for name in forwarded:
        getattr(Forwarding(), name)()
    assert asked == forwarded


def test_a_private_name_is_not_forwarded() -> None:
    with pytest.raises(AttributeError, match="_secret"):
        _ = StoreWrapper()._secret
