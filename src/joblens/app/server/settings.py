"""Settings of the server as its pages show them: values, origins, meanings; secrets are redacted."""

from msgspec import Struct, to_builtins

from joblens.app.doctor.effective_settings import effective_values
from joblens.app.server.access import Principal
from joblens.app.wiring.settings import load_settings
from joblens.model.setting_list import all_settings
from joblens.model.settings import Settings
from joblens.views.setup.config import setting_values, value_text

STARTED_WITH = "option, or a value that was changed after the server started"


class ShownSetting(Struct, frozen=True, kw_only=True):
    name: str
    value: str | None  # None: not set
    origin: str
    is_default: bool
    variable: str  # of the environment
    expected: str
    meaning: str


class ShownSettings(Struct, frozen=True, kw_only=True):
    items: tuple[ShownSetting, ...]
    files: tuple[str, ...]  # that were read, in the order they are applied
    problems: tuple[str, ...]


def get_settings(caller: Principal, settings: Settings, config: str | None) -> ShownSettings:
    """Files are read again for the origins. A value that they do not have came from an option."""
    caller.require_all("settings")
    loaded = load_settings(config=config, skip_invalid=True, warn=lambda _text: None)
    now = setting_values(to_builtins(loaded.settings))
    running = setting_values(to_builtins(settings))
    known_origins = loaded.origins
    origins = {
        name: known_origins[name] if now[name] == value else STARTED_WITH for name, value in running.items()
    }
    values = effective_values(settings, origins)
    known = all_settings()
    return ShownSettings(
        items=tuple(
            ShownSetting(
                name=name,
                value=None if each.value is None else value_text(each.value, known[name].kind.value),
                origin=each.origin,
                is_default=each.origin == "default",
                variable=known[name].variable,
                expected=known[name].expected,
                meaning=known[name].meaning,
            )
            for name, each in values.items()
        ),
        files=loaded.files,
        problems=(*loaded.problems, *(f"{path}: {why}" for path, why in loaded.skipped.items())),
    )
