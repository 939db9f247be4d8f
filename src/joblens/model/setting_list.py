"""List of all settings, with kind, range, default and meaning of each."""

import enum
from functools import cache
from typing import Any

from msgspec import Struct, inspect

from joblens.model import settings
from joblens.model.jobs.probe_choice import ALL_PROBES
from joblens.model.settings import Settings, names_of, variable_of

_DEFAULTS = Settings()


class Kind(enum.StrEnum):
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    PATH = "path"
    DURATION = "duration"
    SIZE = "size"
    CHOICE = "choice"
    PROBES = "probes"


EXPECTED = {
    Kind.BOOL: "true or false",
    Kind.INT: "a whole number",
    Kind.FLOAT: "a number",
    Kind.TEXT: "text",
    Kind.PATH: "a path",
    Kind.DURATION: "a duration such as 5s, 500ms or 1h30m",
    Kind.SIZE: "a size such as 512m or 2GB",
    Kind.PROBES: f"all, none, default, or some of {', '.join(ALL_PROBES)}; + and - change the default",
}


class Setting(Struct, frozen=True, kw_only=True):
    name: str  # dotted: job_metrics.enabled
    kind: Kind
    is_optional: bool  # may be null: not set
    choices: tuple[str, ...] = ()
    choice_class: type[enum.StrEnum] | None = None
    least: float | None = None
    most: float | None = None
    default: Any = None
    meaning: str = ""

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def expected(self) -> str:
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(self.choices)
        return EXPECTED[self.kind]


@cache
def all_settings() -> dict[str, Setting]:
    return {name: _described(name) for name in names_of(_DEFAULTS)}


@cache
def setting_of(name: str) -> Setting | None:
    """Returns one setting, without evaluating the annotations of all others: a job that has JOBLENS_STORE in
    its environment starts 6 ms earlier."""
    return _described(name) if name in names_of(_DEFAULTS) else None


def _described(name: str) -> Setting:
    section: Struct = _DEFAULTS
    *sections, key = name.split(".")
    for part in sections:
        section = getattr(section, part)
    annotation = eval(type(section).__annotations__[key], vars(settings))  # noqa: S307  # of our own class
    bare, meaning, unit = _bare(inspect.type_info(annotation))
    return _setting(name, bare, meaning, unit, getattr(section, key))


def _bare(type_: inspect.Type) -> tuple[inspect.Type, str, str]:
    """Returns (type without annotations, meaning, unit)."""
    meaning = unit = ""
    while isinstance(type_, inspect.Metadata):
        meaning = meaning or (type_.extra_json_schema or {}).get("description", "")
        unit = unit or (type_.extra or {}).get("unit", "")
        type_ = type_.type
    return type_, meaning, unit


def _setting(name: str, type_: inspect.Type, meaning: str, unit: str, default: Any) -> Setting:
    is_optional = False
    if isinstance(type_, inspect.UnionType):
        (type_,) = (one for one in type_.types if not isinstance(one, inspect.NoneType))
        type_, _, unit = _bare(type_)
        is_optional = True
    choices: tuple[str, ...] = ()
    choice_class = None
    least: float | None = None
    most: float | None = None
    match type_:
        case inspect.BoolType():
            kind = Kind.BOOL
        case inspect.IntType():
            kind, least, most = Kind(unit or Kind.INT), type_.ge, type_.le
        case inspect.FloatType():
            kind, least, most = Kind(unit or Kind.FLOAT), type_.ge, type_.le
        case inspect.StrType():
            kind = Kind(unit or Kind.TEXT)
        case inspect.EnumType(cls=cls) if issubclass(cls, enum.StrEnum):
            kind, choices, choice_class = Kind.CHOICE, tuple(member.value for member in cls), cls
        case inspect.LiteralType(values=values):
            kind, choices = Kind.CHOICE, tuple(str(value) for value in values)
        case _:
            raise TypeError(f"setting {name} has an unsupported type: {type_}")
    return Setting(
        name=name,
        kind=kind,
        is_optional=is_optional,
        choices=choices,
        choice_class=choice_class,
        least=least,
        most=most,
        default=default,
        meaning=meaning,
    )
