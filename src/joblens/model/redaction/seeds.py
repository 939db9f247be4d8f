"""Numbers that chance was started from, found where people write them: in parameters, in words of a command,
in the environment."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from joblens.model.redaction.secrets import REDACTED

_SIGNS = ("seed", "random_state", "random-state", "randomstate", "rng")
_NAMES = frozenset(
    {"seed", "seeds", "rng", "rngseed", "randomseed", "randomstate", "randstate", "seedvalue", "rngstate"}
)
_MOST = 16
_LONGEST = 64


def seeds_of(
    argv: Sequence[str], params: Mapping[str, Any] = {}, env: Mapping[str, str] = {}
) -> dict[str, str]:
    """By the name each was given under, without dashes; what was taken out of them as a secret is none. All
    three as they may be remembered. Quick where nothing speaks of one."""
    found: dict[str, str] = {}
    told = " ".join(argv).lower()
    if any(sign in told for sign in _SIGNS):
        found.update(_in_words(argv))
    for name, value in params.items():
        if is_seed_name(name) and isinstance(value, (int, float, str)) and not isinstance(value, bool):
            found[name] = str(value)
    found |= {name: value for name, value in env.items() if is_seed_name(name)}
    kept = {name: value for name, value in found.items() if REDACTED not in value}
    return {name: value for name, value in list(kept.items())[:_MOST] if 0 < len(value) <= _LONGEST}


def is_seed_name(name: str) -> bool:
    """seed, random_state, --data-seed, PYTHONHASHSEED; not seeded, seedling, or a path to seeds."""
    lower = name.lower()
    if not any(sign in lower for sign in _SIGNS):
        return False
    words = _words().findall(lower)
    return "".join(words) in _NAMES or (bool(words) and words[-1] in ("seed", "pythonhashseed"))


def _in_words(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--seed 7`, `--seed=7`, `seed=7`, also within a shell line."""
    words = [word for each in argv for word in each.split()]
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not is_seed_name(name):
            continue
        if equals and value:
            yield name.lstrip("-"), value
        elif name.startswith("-") and place + 1 < len(words) and not words[place + 1].startswith("--"):
            yield name.lstrip("-"), words[place + 1]


@cache
def _words() -> re.Pattern[str]:
    return re.compile(r"[a-z]+")
