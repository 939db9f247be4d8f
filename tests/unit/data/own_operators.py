"""What tests of own operators share: no test sees another's."""

import pytest

from joblens.data.registry import user_operators


@pytest.fixture
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_registered", "_sources", "_loaded"):
        monkeypatch.setattr(user_operators, name, {})
