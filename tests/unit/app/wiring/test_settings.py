"""Which value wins, and where it says it came from."""

import os
from pathlib import Path

import pytest

from joblens.app.wiring.settings import LoadedSettings, load_settings
from joblens.model.errors import ConfigError
from joblens.model.setting_list import all_settings
from joblens.model.settings import Settings


class Machine:
    """A system file, a user, a project and a current directory, all below tmp_path."""

    def __init__(self, root: Path) -> None:
        self.system = root / "etc" / "joblens.yml"
        self.user = root / "home" / ".config" / "joblens" / "joblens.yml"
        self.project = root / "home" / "project" / "joblens.yml"
        self.here = self.project.parent / "deep" / "down"
        self.asked = root / "asked.yml"
        for folder in (self.system.parent, self.user.parent, self.here):
            folder.mkdir(parents=True, exist_ok=True)
        self.env = {"HOME": str(root / "home")}
        self.warnings: list[str] = []

    def load(
        self, config: Path | str | None = None, options: dict[str, str] | None = None, **env: str
    ) -> LoadedSettings:
        return load_settings(
            config=None if config is None else str(config),
            overrides=options,
            env={**self.env, **env},
            cwd=str(self.here),
            system_config=str(self.system),
            warn=self.warnings.append,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def grace(text: str) -> str:
    return f"limits:\n  grace: {text}\n"


def test_without_any_file_everything_is_a_default(machine: Machine) -> None:
    loaded = machine.load()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(all_settings())
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.files == ()


def test_each_later_place_wins_over_the_earlier(machine: Machine) -> None:
    def check(loaded: LoadedSettings, seconds: float, origin: str) -> None:
        assert loaded.settings.limits.grace == seconds
        assert loaded.origins["limits.grace"] == origin

    machine.system.write_text(grace("1s"))
    check(machine.load(), 1.0, f"{machine.system}:2")
    machine.user.write_text(grace("2s"))
    check(machine.load(), 2.0, f"{machine.user}:2")
    machine.project.write_text(grace("3s"))
    check(machine.load(), 3.0, f"{machine.project}:2")
    machine.asked.write_text("# mine\n" + grace("4s"))
    check(machine.load(config=machine.asked), 4.0, f"{machine.asked}:3")
    check(machine.load(JOBLENS_LIMITS_GRACE="5s"), 5.0, "environment JOBLENS_LIMITS_GRACE")
    check(
        machine.load(config=machine.asked, options={"limits.grace": "6s"}, JOBLENS_LIMITS_GRACE="5s"),
        6.0,
        "option --grace",
    )


def test_files_add_up_key_by_key(machine: Machine) -> None:
    machine.system.write_text("limits: {grace: 1s, enforce: false}")
    machine.project.write_text("limits: {grace: 3s}")
    loaded = machine.load()
    assert (loaded.settings.limits.grace, loaded.settings.limits.enforce) == (3.0, False)
    assert loaded.files == (str(machine.system), str(machine.project))


def test_the_nearest_project_file_is_the_one(machine: Machine) -> None:
    machine.project.write_text(grace("3s"))
    near = machine.here.parent / "joblens.yml"
    near.write_text("logs: {level: ERROR}")
    loaded = machine.load()
    assert loaded.files == (str(near),)


def test_the_search_stops_at_the_top_of_a_git_tree(machine: Machine) -> None:
    machine.project.write_text(grace("3s"))
    (machine.here / ".git").mkdir()
    assert machine.load().files == ()


def test_the_search_stops_at_home(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "joblens.yml").write_text(grace("3s"))
    assert machine.load().files == ()
    at_home = tmp_path / "home" / "joblens.yml"
    at_home.write_text(grace("4s"))
    assert machine.load().files == (str(at_home),)


STRANGER = 12345


def _untrusted(machine: Machine, how: str) -> None:
    """Makes the project's file one that others could have written."""
    project = machine.project
    if how == "folder open to all":
        project.parent.chmod(0o1777)
    elif how == "file open to all":
        project.chmod(0o666)
    elif how == "folder of another user":
        os.chown(project.parent, STRANGER, STRANGER)
    elif how == "file of another user":
        os.chown(project, STRANGER, STRANGER)
    else:
        elsewhere = machine.asked.parent / "elsewhere"
        elsewhere.mkdir()
        project.rename(elsewhere / "theirs.yml")
        project.symlink_to(elsewhere / "theirs.yml")
        os.chown(elsewhere if how == "link into a folder of another user" else project, STRANGER, STRANGER)


WAYS = ("folder open to all", "file open to all", "folder of another user", "file of another user",
        "link into a folder of another user", "link to a file of another user")  # fmt: skip


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("how", WAYS)
def test_a_file_that_others_could_have_written_is_skipped_and_reported(machine: Machine, how: str) -> None:
    machine.project.write_text(grace("3s"))
    assert machine.load().files == (str(machine.project),)
    _untrusted(machine, how)
    loaded = machine.load()
    assert (loaded.files, loaded.settings) == ((), Settings())
    assert list(loaded.skipped) == [str(machine.project)]
    (warning,) = machine.warnings
    assert warning.startswith(f"{machine.project} is not used: ")
    assert warning.endswith(f"to use it, give --config {machine.project}")
    assert machine.load(config=machine.project).files == (str(machine.project),)  # it was named


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_next_trusted_file_upwards_counts(machine: Machine) -> None:
    near = machine.here / "joblens.yml"
    near.write_text(grace("9s"))
    os.chown(near, STRANGER, STRANGER)
    machine.project.write_text(grace("3s"))
    loaded = machine.load()
    assert loaded.files == (str(machine.project),)
    assert list(loaded.skipped) == [str(near)]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_files_of_another_users_home_and_of_a_strange_system_are_skipped(machine: Machine) -> None:
    for path in (machine.user, machine.system):  # sudo that keeps HOME
        path.write_text(grace("3s"))
        os.chown(path, STRANGER, STRANGER)
    loaded = machine.load()
    assert (loaded.files, loaded.settings) == ((), Settings())
    assert list(loaded.skipped) == [str(machine.system), str(machine.user)]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_relative_path_in_the_environment_is_checked_and_an_absolute_one_is_not(machine: Machine) -> None:
    theirs = machine.here / "theirs.yml"
    theirs.write_text(grace("3s"))
    os.chown(theirs, STRANGER, STRANGER)
    assert machine.load(JOBLENS_CONFIG="theirs.yml").files == ()
    assert machine.load(JOBLENS_CONFIG=str(theirs)).files == (str(theirs),)


def test_a_group_of_ones_own_may_write_to_a_trusted_file(machine: Machine) -> None:
    machine.project.write_text(grace("3s"))
    machine.project.chmod(0o664)
    machine.project.parent.chmod(0o775)
    assert machine.load().files == (str(machine.project),)


def test_a_library_user_is_warned_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.project.write_text(grace("3s"))
    machine.project.chmod(0o666)
    monkeypatch.chdir(machine.here)
    with pytest.warns(RuntimeWarning, match="is not used: .* is writable by all users"):
        load_settings(env=machine.env, system_config="/nowhere")


def test_the_environment_can_name_the_file(machine: Machine) -> None:
    machine.asked.write_text(grace("4s"))
    assert machine.load(JOBLENS_CONFIG=str(machine.asked)).settings.limits.grace == 4.0


def test_the_option_for_the_file_wins_over_the_environment(machine: Machine) -> None:
    machine.asked.write_text(grace("4s"))
    assert machine.load(config=machine.asked, JOBLENS_CONFIG="/nowhere.yml").settings.limits.grace == 4.0


def test_a_file_that_was_asked_for_must_exist(machine: Machine) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yml: cannot be read: No such file") as caught:
        machine.load(config="missing.yml")
    assert caught.value.exit_code == 2
    assert "--config" in caught.value.hint


def test_a_file_that_is_not_text_is_refused(machine: Machine) -> None:
    machine.project.write_bytes(b"logs: {level: \xff\xfe}")
    with pytest.raises(ConfigError, match="not UTF-8"):
        machine.load()


def test_a_relative_config_is_found_from_the_current_directory(machine: Machine) -> None:
    (machine.here / "my.yml").write_text(grace("9s"))
    assert machine.load(config="my.yml").settings.limits.grace == 9.0


def test_relative_paths_start_where_they_are_written(machine: Machine) -> None:
    machine.project.write_text("output: {dir: kept}\nlogs: {file: joblens.log}\n")
    loaded = machine.load(options={"logs.file": "other.log"}, JOBLENS_STORE="my.db")
    assert loaded.settings.output.dir == str(machine.project.parent / "kept")
    assert loaded.settings.logs.file == str(machine.here / "other.log")
    assert loaded.settings.store.url == str(machine.here / "my.db")


def test_the_short_variable_wins_over_the_long(machine: Machine) -> None:
    loaded = machine.load(JOBLENS_STORE="/short.db", JOBLENS_STORE_URL="/long.db")
    assert loaded.settings.store.url == "/short.db"
    assert loaded.origins["store.url"] == "environment JOBLENS_STORE"
    assert machine.load(JOBLENS_STORE_URL="/long.db").settings.store.url == "/long.db"


def test_a_store_named_without_its_password_has_the_one_that_was_reported_before(machine: Machine) -> None:
    machine.user.write_text("store:\n  url: postgres://joe:secret@/jobs?host=/run\n")
    named = machine.load(JOBLENS_STORE="postgresql://joe@/jobs?host=/run").settings.store.url
    assert named == "postgres://joe:secret@/jobs?host=/run"
    for other in ("postgresql://ann@/jobs?host=/run", "postgresql://joe:new@/jobs?host=/run", "/jobs.db"):
        assert machine.load(JOBLENS_STORE=other).settings.store.url == other


@pytest.mark.parametrize("name", list(all_settings()))
def test_every_setting_can_come_from_the_environment(name: str, machine: Machine) -> None:
    setting = all_settings()[name]
    # An empty variable is not set, so settings without a default get a value of their kind.
    has_default = setting.default not in (None, "")
    value = str(setting.default) if has_default else {"duration": "1s", "float": "1"}.get(setting.kind, "/x")
    machine.env[setting.variable] = value
    loaded = machine.load()
    assert loaded.origins[name] == f"environment {setting.variable}"


def test_an_empty_variable_is_not_set(machine: Machine) -> None:
    assert machine.load(JOBLENS_STORE="", JOBLENS_CONFIG="").origins["store.url"] == "default"


def test_a_misspelt_variable_is_refused_with_the_right_name(machine: Machine) -> None:
    with pytest.raises(ConfigError, match="did you mean JOBLENS_JOB_METRICS_ENABLED"):
        machine.load(JOBLENS_JOB_METRICS_ENABELD="true")


def test_a_variable_that_is_no_setting_at_all_is_left_alone(machine: Machine) -> None:
    assert machine.load(JOBLENS_JOB_ID="f47ac10b").settings == Settings()


def test_what_is_wrong_everywhere_is_reported_at_once(machine: Machine) -> None:
    machine.system.write_text("zzz: 1\n")
    machine.project.write_text("logs: {level: loud}\n")
    with pytest.raises(ConfigError) as caught:
        machine.load(options={"output.captur": "no"}, JOBLENS_LIMITS_GRACE="soon")
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 problems in the configuration:"
    assert lines[1].startswith(f"  {machine.system}:1:1: ")
    assert lines[2].startswith(f"  {machine.project}:1:8: ")
    assert lines[3].startswith("  environment JOBLENS_LIMITS_GRACE: ")
    assert lines[4].startswith("  option output.captur: ")
