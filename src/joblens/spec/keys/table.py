"""What the tables of keys are made of."""

import enum
from typing import Any

from msgspec import Struct

from joblens.spec.keys.kinds import Kind

# Engines without what a key is about.
NOT_SLURM = ("local", "celery", "ray")
NOT_CELERY = ("local", "ray", "slurm")
WITHOUT_NODES = ("local", "celery")


class NoEffect(Struct, frozen=True, kw_only=True):
    """A key that is read and changes nothing: a file that sets it gets a warning (`spec.key_warnings`)."""

    why: str  # follows 'KEY has no effect: '
    engines: tuple[str, ...] = ()  # with which it has no effect; (): with all
    only: tuple[Any, ...] = ()  # values that have none; (): all but `same_as_absent`
    same_as_absent: tuple[Any, ...] = (False,)  # values that say the same as leaving the key out

    def covers(self, value: Any) -> bool:
        """Whether this value deserves the warning. `True` is no 1 here."""
        if value is None or value in ([], {}):
            return False
        listed = self.only or self.same_as_absent
        is_listed = any(value == one and type(value) is type(one) for one in listed)
        return is_listed if self.only else not is_listed


class Key(Struct, frozen=True, kw_only=True):
    name: str
    kind: Kind
    meaning: str
    default: Any = None  # as it would be written; None: nothing
    is_required: bool = False
    field: str = ""  # of the value it becomes, where that has another name
    older_name_of: str = ""
    choices: tuple[str, ...] = ()
    choice_class: type[enum.StrEnum] | None = None
    least: float | None = None
    more_than: float | None = None
    most: float | None = None
    section: str = ""  # what is inside, for mappings and lists of them
    only_with: tuple[str, tuple[str, ...]] | None = None  # another key, and the values of it this goes with
    warns_elsewhere: bool = False  # without what `only_with` names it gets a warning; else it is a mistake
    example: Any = None
    no_effect: NoEffect | None = None

    def is_written(self, value: Any) -> bool:
        """Whether a value says more than leaving the key out."""
        if isinstance(value, bool) and self.default is not None:
            return value is not self.default
        return value is not None and value is not False and value != []

    @property
    def target(self) -> str:
        return self.field or self.older_name_of or self.name


class Need(Struct, frozen=True):
    """Where `key` has one of `values`, one of `any_of` must stand beside it."""

    key: str
    values: tuple[str, ...]
    any_of: tuple[str, ...]


class Section(Struct, frozen=True, kw_only=True):
    name: str
    title: str  # as messages call one of them
    place: str  # where it stands in a file
    keys: dict[str, Key]
    needs: tuple[Need, ...] = ()
    needs_any: tuple[str, ...] = ()  # one of these must be there
    excludes: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a key, and those that cannot stand beside it
    free_prefix: str = ""  # keys that begin so are the writer's own, and not looked at
    warns_of_unknown: bool = False  # an unknown key gets a warning and is skipped; else it is a mistake

    def is_free(self, name: str) -> bool:
        return bool(self.free_prefix) and name.startswith(self.free_prefix)


def key(name: str, kind: Kind, meaning: str, **more: Any) -> Key:
    return Key(name=name, kind=kind, meaning=meaning, **more)


def required(name: str, kind: Kind, meaning: str, **more: Any) -> Key:
    return Key(name=name, kind=kind, meaning=meaning, is_required=True, **more)


def flag(name: str, meaning: str, default: bool | None = False, **more: Any) -> Key:  # noqa: FBT001, FBT002
    return Key(name=name, kind=Kind.BOOL, meaning=meaning, default=default, **more)


def choice(name: str, choices: tuple[str, ...] | type[enum.StrEnum], meaning: str, **more: Any) -> Key:
    if isinstance(choices, type):
        more["choice_class"], choices = choices, tuple(member.value for member in choices)
    return Key(name=name, kind=Kind.CHOICE, choices=choices, meaning=meaning, **more)


def section(name: str, title: str, place: str, *keys: Key, **more: Any) -> Section:
    return Section(name=name, title=title, place=place, keys={key.name: key for key in keys}, **more)
