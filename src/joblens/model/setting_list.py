"""List of all settings, with kind, range, default and meaning of each."""

import enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct

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


_KINDS = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, str: Kind.TEXT}

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
    return _setting(name, annotation, getattr(section, key))


def _bare(annotation: Any) -> tuple[Any, list[Meta]]:
    """Returns (type without annotations, its annotations, the outermost first)."""
    if get_origin(annotation) is not Annotated:
        return annotation, []
    inner, *metas = get_args(annotation)
    bare, others = _bare(inner)
    return bare, [*reversed(metas), *others]


def _setting(name: str, annotation: Any, default: Any) -> Setting:
    """Reads the annotation itself: msgspec.inspect does the same, and imports what makes a job with a
    setting in its environment start 5 ms later."""
    type_, metas = _bare(annotation)
    is_optional = get_origin(type_) in (Union, UnionType)
    if is_optional:
        (only,) = (one for one in get_args(type_) if one is not NoneType)
        type_, inner = _bare(only)
        metas += inner
    meaning = next((meta.description for meta in metas if meta.description), "")
    unit = next((meta.extra["unit"] for meta in metas if meta.extra and "unit" in meta.extra), "")
    least = next((meta.ge for meta in metas if meta.ge is not None), None)
    most = next((meta.le for meta in metas if meta.le is not None), None)
    choices: tuple[str, ...] = ()
    choice_class = None
    if type_ in _KINDS:
        kind = Kind(unit or _KINDS[type_])
    elif get_origin(type_) is Literal:
        kind, choices = Kind.CHOICE, get_args(type_)
    elif issubclass(type_, enum.StrEnum):
        kind, choices, choice_class = Kind.CHOICE, tuple(member.value for member in type_), type_
    else:
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
