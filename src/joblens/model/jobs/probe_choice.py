"""Probes besides CPU, memory, I/O and processes, and the user's choice of them."""

from msgspec import Struct

from joblens.model.errors import InputError


class Instrument(Struct, frozen=True):
    """A probe for numbers (`groups`: keys of their sources in a record) or for a part of the details."""

    about: str
    groups: tuple[str, ...] = ()
    detail: str = ""


INSTRUMENTS: dict[str, Instrument] = {
    "network": Instrument("bytes and packets in and out", groups=("network",)),
    "endpoints": Instrument("remote addresses and ports", detail="endpoints"),
    "gpu": Instrument("GPUs: its memory and time on them", groups=("gpu", "gpu_energy")),
    "energy": Instrument("energy of processors and memory", groups=("energy",)),
    "counters": Instrument(
        "instructions, cycles, migrations", groups=("processor_counters", "cpu_migrations")
    ),
    "threads": Instrument("its hottest threads", detail="threads"),
    "memory": Instrument("memory in depth: PSS, NUMA, huge pages; dear", detail="memory"),
}
ALL_PROBES: tuple[str, ...] = tuple(INSTRUMENTS)
# Measured by default.
DEFAULT_PROBES: tuple[str, ...] = tuple(name for name in INSTRUMENTS if name != "memory")
_SETS = {"all": ALL_PROBES, "none": (), "default": DEFAULT_PROBES}


def chosen_probes(text: str, default: tuple[str, ...] = DEFAULT_PROBES) -> tuple[str, ...]:
    """Parses 'all', 'none', 'default' or comma-separated names; '+NAME' and '-NAME' change the default.
    Raises InputError."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError(f"probes {text!r}: no name", hint=_HINT)
    if "none" in words and len(words) > 1:
        raise InputError(f"probes {text!r}: 'none' cannot be combined with other names", hint=_HINT)
    chosen = set(default if words[0][0] in "+-" else ())
    for word in words:
        names = _named(word.lstrip("+-"), word)
        if word[0] == "-":
            chosen.difference_update(names)
        else:
            chosen.update(names)
    return tuple(name for name in ALL_PROBES if name in chosen)


def _named(name: str, word: str) -> tuple[str, ...]:
    if name in _SETS:
        return _SETS[name]
    if name not in INSTRUMENTS:
        raise InputError(f"probes: unknown name {word!r}", hint=_HINT)
    return (name,)


_HINT = f"one or more of {', '.join(ALL_PROBES)}; or all, none, default; +NAME and -NAME change the default"
