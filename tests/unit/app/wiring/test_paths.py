import pytest

from joblens.app.wiring import drivers as places

HOME = {"HOME": "/home/ada"}


def test_places_lie_below_home_when_nothing_is_said() -> None:
    assert places.default_store_path(HOME) == "/home/ada/.local/share/joblens/joblens.db"
    assert places.default_journal_dir(HOME) == "/home/ada/.local/state/joblens/journal"
    assert places.user_config_path(HOME) == "/home/ada/.config/joblens/joblens.yml"


def test_the_xdg_variables_move_them() -> None:
    env = {**HOME, "XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    assert places.default_store_path(env) == "/d/joblens/joblens.db"
    assert places.default_journal_dir(env) == "/s/joblens/journal"
    assert places.user_config_path(env) == "/c/joblens/joblens.yml"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_an_empty_or_relative_xdg_variable_counts_as_unset(value: str) -> None:
    env = {**HOME, "XDG_DATA_HOME": value, "XDG_STATE_HOME": value}
    assert places.default_store_path(env).startswith("/home/ada/")
    assert places.state_dir(env).startswith("/home/ada/")


def test_logs_lie_beside_the_store() -> None:
    assert places.logs_dir("/data/joblens.db") == "/data/logs"
