"""What tests of own operators share: no test sees another's."""

import pytest

from joblens.data import user_operators


@pytest.fixture
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, empty in (("_registered", {}), ("_sources", {}), ("_loaded", set())):
        monkeypatch.setattr(user_operators, name, empty)
