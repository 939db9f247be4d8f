"""Types of the tables of keys."""

import enum
from typing import Any

from msgspec import Struct

from joblens.spec.keys.kinds import Kind

# Engines that a key does not apply to.
NOT_SLURM = ("local", "celery", "ray")
NOT_CELERY = ("local", "ray", "slurm")
WITHOUT_NODES = ("local", "celery")


class NoEffect(Struct, frozen=True, kw_only=True):
    """Key that is accepted and has no effect: a file that sets it gets a warning (`spec.keys.unknown`)."""

    why: str  # follows 'KEY has no effect: '
    engines: tuple[str, ...] = ()  # without effect with these engines; (): with all
    only: tuple[Any, ...] = ()  # values without effect; (): all but `same_as_absent`
    same_as_absent: tuple[Any, ...] = (False,)  # values that mean the same as omitting the key

    def covers(self, value: Any) -> bool:
        """Returns whether this value gets the warning. `True` is not 1 here."""
        if value is None or value in ([], {}):
            return False
        listed = self.only or self.same_as_absent
        is_listed = any(value == one and type(value) is type(one) for one in listed)
        return is_listed if self.only else not is_listed


class Key(Struct, frozen=True, kw_only=True):
    name: str
    kind: Kind
    meaning: str
    default: Any = None  # as written in a file; None: none
    is_required: bool = False
    field: str = ""  # field of the value, if its name differs
    older_name_of: str = ""
    choices: tuple[str, ...] = ()
    choice_class: type[enum.StrEnum] | None = None
    least: float | None = None
    more_than: float | None = None
    most: float | None = None
    section: str = ""  # inner section, for mappings and lists of them
    only_with: tuple[str, tuple[str, ...]] | None = None  # another key, and its values that this key requires
    warns_elsewhere: bool = False  # without the key in `only_with` it gets a warning, else an error
    example: Any = None
    no_effect: NoEffect | None = None

    def is_written(self, value: Any) -> bool:
        """Returns whether a value differs from omitting the key."""
        if isinstance(value, bool) and self.default is not None:
            return value is not self.default
        return value is not None and value is not False and value != []

    @property
    def target(self) -> str:
        return self.field or self.older_name_of or self.name


class Need(Struct, frozen=True):
    """If `key` has one of `values`, one of `any_of` is required."""

    key: str
    values: tuple[str, ...]
    any_of: tuple[str, ...]


class Section(Struct, frozen=True, kw_only=True):
    name: str
    title: str  # name of one entry in messages
    location: str  # its path in a file
    keys: dict[str, Key]
    needs: tuple[Need, ...] = ()
    needs_any: tuple[str, ...] = ()  # one of these is required
    excludes: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a key, and those that it cannot be combined with
    free_prefix: str = ""  # keys with this prefix are user-defined and ignored
    warns_of_unknown: bool = False  # an unknown key gets a warning, else an error

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


def section(name: str, title: str, location: str, *keys: Key, **more: Any) -> Section:
    return Section(name=name, title=title, location=location, keys={key.name: key for key in keys}, **more)
