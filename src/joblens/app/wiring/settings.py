"""Effective settings: defaults, then files, then the environment, then options; each with its origin."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from joblens.app.wiring.drivers import CONFIG_NAME, SYSTEM_CONFIG, home_dir, user_config_path
from joblens.files.private import untrusted_reason
from joblens.model.errors import ConfigError, InputError
from joblens.model.settings import Settings, names_of, variable_of

S = TypeVar("S", bound=Struct)

_DEFAULTS = Settings()

# Short names for common settings. The long ones (JOBLENS_STORE_URL) work too.
_STORE = "store.url"
_SHORT_VARIABLES = {"JOBLENS_STORE": _STORE}

# Options of the command line that set a setting, to show where a value comes from.
OPTION_OF = {
    "store.url": "--store",
    "job_metrics.default_sample_rate": "--interval",
    "job_metrics.enabled": "--no-monitor",
    "job_metrics.probes": "--probes",
    "limits.accounting": "--accounting",
    "limits.enforce": "--no-enforce",
    "limits.grace": "--grace",
    "output.capture": "--no-capture",
    "queue.broker": "--broker",
    "queue.name": "--queue",
    "queue.retry_lost": "--retry-lost",
}


class LoadedSettings(Struct, frozen=True, kw_only=True):
    settings: Settings
    changed: dict[str, str]  # origins of values that are not defaults, by dotted name
    files: tuple[str, ...] = ()  # in the order they were applied
    skipped: dict[str, str] = {}  # files that others could have written, with the reason
    problems: tuple[str, ...] = ()  # ignored values, if that was allowed

    @property
    def origins(self) -> dict[str, str]:
        """Returns of every dotted name: 'default', 'FILE:LINE', 'environment NAME' or 'option --NAME'."""
        return dict.fromkeys(names_of(_DEFAULTS), "default") | self.changed


class _Layers:
    """Values so far; a later one replaces an earlier one. Problems are collected until all is read."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []

    def add_file(self, path: str, text: str) -> None:
        from joblens.spec.settings.config import read_config

        reading = read_config(text, path)
        self.values.update(reading.values)
        self.origins.update({name: f"{path}:{line}" for name, line in reading.lines.items()})
        self.problems += reading.problems

    def add_text(self, name: str, text: str, origin: str, base_dir: str) -> None:
        from joblens.model.setting_list import setting_of
        from joblens.spec.settings.config import unknown_key, value_from_text

        setting = setting_of(name)
        if setting is None:
            self.problems.append(f"{origin}: {unknown_key(name)}")
            return
        try:
            value = value_from_text(setting, text, base_dir)
            self.values[name] = self._with_known_password(value) if name == _STORE else value
            self.origins[name] = origin
        except InputError as error:
            self.problems.append(f"{origin}: {error}")

    def _with_known_password(self, url: str) -> str:
        """The same store without its password means the one that was given before."""
        from joblens.model.settings import same_store

        known = self.values.get(_STORE)
        return known if isinstance(known, str) and same_store(url, known) else url


def load_settings(
    *,
    config: str | None = None,
    overrides: Mapping[str, str] | None = None,
    env: Mapping[str, str] = os.environ,
    cwd: str | None = None,
    system_config: str = SYSTEM_CONFIG,
    skip_invalid: bool = False,
    warn: Callable[[str], None] | None = None,
) -> LoadedSettings:
    """`config` is the value of `--config`, `overrides` are options by dotted setting name. ConfigError
    lists all errors in files, variables and options; with `skip_invalid` they are in the result instead,
    and the rest is used. `warn` is called for each file that is not trusted; default: a Python warning."""
    here = cwd or _current_dir()
    layers = _Layers()
    texts, skipped = _read_files(config, env, here or "/", system_config)
    for path, text in texts.items():
        layers.add_file(path, text)
    _add_environment(layers, env, here)
    for name, text in (overrides or {}).items():
        layers.add_text(name, text, f"option {OPTION_OF.get(name, name)}", here)
    if layers.problems and not skip_invalid:
        raise config_error(layers.problems)
    for path, reason in skipped.items():
        import shlex

        (warn or _warn_in_python())(
            f"{path} is not used: {reason}; to use it, give --config {shlex.quote(path)}"
        )
    return LoadedSettings(
        settings=_filled(_DEFAULTS, layers.values),
        changed=layers.origins,
        files=tuple(texts),
        skipped=skipped,
        problems=tuple(layers.problems),
    )


def _warn_in_python() -> Callable[[str], None]:
    from joblens.app.wiring.drivers import warn_in_python

    return warn_in_python


def _read_files(
    config: str | None, env: Mapping[str, str], here: str, system_config: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the files to apply with their text, in that order, and the skipped ones with the reason.
    The nearest trusted project file is used; a file that is found in two ways is applied last."""
    own = os.path.expanduser(config or env.get("JOBLENS_CONFIG", ""))
    # A relative path in the environment is a different file in every directory: ignored.
    named = os.path.join(here, own) if config or os.path.isabs(own) else None
    sources: list[Iterable[str]] = [
        filter(os.path.isfile, [system_config]),
        filter(os.path.isfile, [user_config_path(env)]),
        find_project_configs(here, home_dir(env)),
        [os.path.join(here, own)] if own else [],
    ]
    texts: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for paths in sources:
        for path in paths:
            text, reason = _read(path, check=path != named)
            if reason:
                skipped[path] = reason
                continue
            texts.pop(path, None)
            texts[path] = text
            break
    return texts, skipped


def find_project_configs(here: str, home: str) -> Iterator[str]:
    """Returns every joblens.yml from here upwards, up to the home directory or the top of a git tree."""
    folder = os.path.abspath(here)
    while True:
        path = os.path.join(folder, CONFIG_NAME)
        if os.path.isfile(path):
            yield path
        parent = os.path.dirname(folder)
        if folder in (parent, home) or os.path.exists(os.path.join(folder, ".git")):
            return
        folder = parent


def _read(path: str, *, check: bool) -> tuple[str, str]:
    """Returns the text, or why the file is not trusted."""
    try:
        with open(path, encoding="utf-8") as file:
            reason = untrusted_reason(path, file.fileno()) if check else ""
            return "" if reason else file.read(), reason
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        hint = "check the path given with --config or JOBLENS_CONFIG"
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error


def _add_environment(layers: _Layers, env: Mapping[str, str], here: str) -> None:
    """An empty variable counts as not set, as in most programs."""
    variables = [name for name in env if name.startswith("JOBLENS_") and env[name]]
    if not variables:
        return
    known = {variable_of(name): name for name in names_of(_DEFAULTS)} | _SHORT_VARIABLES
    sections = tuple(variable_of(section) + "_" for section in _DEFAULTS.__struct_fields__)
    # Short names last, so that they override the long ones.
    for variable in sorted(variables, key=lambda name: (name in _SHORT_VARIABLES, name)):
        if variable in known:
            layers.add_text(known[variable], env[variable], f"environment {variable}", here)
        elif variable.startswith(sections):
            layers.problems.append(_unknown_variable(variable, list(known)))


def _unknown_variable(variable: str, known: list[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(variable, known, n=1)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"environment {variable}: there is no such setting{meant}"


def _filled(section: S, values: dict[str, Any], prefix: str = "") -> S:
    """Returns the section with the given values."""
    if not values:
        return section
    changes: dict[str, Any] = {}
    for field in section.__struct_fields__:
        current = getattr(section, field)
        name = prefix + field
        if isinstance(current, Struct):
            changes[field] = _filled(current, values, name + ".")
        elif name in values:
            changes[field] = values[name]
    return structs.replace(section, **changes)


def config_error(problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0])
    listed = "\n".join(f"  {problem}" for problem in problems)
    return ConfigError(f"{len(problems)} problems in the configuration:\n{listed}")


def _current_dir() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # the directory was removed: there is no project file, and no relative path
