"""Names that matter in commands and environments: of secrets, of variables that may be recorded, and of
random seeds.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct

REDACTED = "***"
_SECRET_WORDS = frozenset({
    "password", "passwd", "pwd", "passphrase", "passcode", "secret", "secrets", "credential", "passwords",
    "passphrases", "passcodes", "apikeys", "cookies", "credentials", "creds", "apikey", "authorization",
    "bearer", "jwt", "cookie", "token", "auth", "pass",
})  # fmt: skip
_SECRET_ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "secretkey")
_KEY_KINDS = frozenset({
    "api", "access", "private", "secret", "encryption", "signing", "ssh", "account", "storage", "master",
    "auth", "bearer", "refresh", "session", "github", "gitlab", "hf", "slack", "service", "shared", "license",
    "aws", "azure", "gcp", "openai", "anthropic", "wandb",
})  # fmt: skip
_SECRET_SIGNS = ("pass", "pwd", "secret", "cred", "key", "auth", "bearer", "jwt", "cookie", "token")
# `max_tokens`, `pad_token`, `--password-file`, `--no-auth` hold no secret.
_NO_SECRET_IF_LAST = frozenset({
    "file", "path", "dir", "stdin", "env", "name", "id", "ids", "type", "length", "len", "count", "size",
    "limit", "budget", "url", "uri", "method", "policy", "ttl", "age", "expiry", "mode", "prompt",
})  # fmt: skip
_NO_SECRET_IF_ANY = frozenset({
    "no", "ask", "use", "with", "without", "skip", "enable", "disable", "require", "max", "min", "num", "pad",
    "eos", "bos", "unk", "mask", "sep", "cls", "per", "vocab", "special", "stop",
})  # fmt: skip
_NO_SECRET_NAMES = frozenset({"pwd", "oldpwd"})

_ALLOWED_ENV = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP",
    "TEMP", "HOSTNAME", "DISPLAY", "EDITOR", "CC", "CXX", "FC", "CFLAGS", "CXXFLAGS", "FFLAGS", "LDFLAGS",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "MAKEFLAGS", "VIRTUAL_ENV",
    "CUDA_VISIBLE_DEVICES", "GOMAXPROCS", "RUST_LOG", "RUST_BACKTRACE", "DEBUG", "VERBOSE", "SEED",
    "TRACEPARENT", "TRACESTATE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "SOURCE_DATE_EPOCH", "CI",
})  # fmt: skip
_ALLOWED_ENV_PREFIXES = (
    "LC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_", "CUDA_", "NVIDIA_",
    "NCCL_", "ROCR_", "HIP_", "HSA_", "OMPI_", "I_MPI_", "MPICH_", "PMIX_", "UCX_", "SLURM_", "PBS_", "LSB_",
    "PYTHON", "CONDA_", "TF_", "TORCH_", "PYTORCH_", "XLA_", "JAX_", "RAY_", "CELERY_", "MALLOC_", "GLIBC_",
    "TORC_", "SIM_", "JOBLENS_", "XDG_",
)  # fmt: skip


def is_secret_name(name: str) -> bool:
    """Returns whether a parameter, option or variable with this name holds a secret."""
    bare = name.lstrip("-")
    if bare.lower() in _NO_SECRET_NAMES:
        return False
    plain = bare.lower().replace("_", "")
    if plain.isascii() and plain.isalnum() and not any(sign in plain for sign in _SECRET_SIGNS):
        return False  # of nearly all variables: no regular expression has to be compiled
    words = [word.lower() for word in _words().findall(bare)]
    if not words:
        return False
    if words[-1] in _NO_SECRET_IF_LAST or not _NO_SECRET_IF_ANY.isdisjoint(words):
        return False
    if not _SECRET_WORDS.isdisjoint(words) or "".join(words).endswith(_SECRET_ENDINGS):
        return True
    # `tokens` alone are parts of a text, `api_tokens` are secrets.
    ambiguous = ("key", "keys", "tokens")
    return any(word in ambiguous and before in _KEY_KINDS for before, word in itertools.pairwise(words))


@lru_cache(512)  # a job asks twice for each of its variables
def is_allowed_env(name: str) -> bool:
    is_listed = name in _ALLOWED_ENV or name.startswith(_ALLOWED_ENV_PREFIXES)
    return is_listed and not is_secret_name(name)


@cache
def _words() -> re.Pattern[str]:
    return re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


_OF_A_SESSION = frozenset({
    "TRACEPARENT", "TRACESTATE", "PWD", "OLDPWD", "TERM", "COLUMNS", "LINES", "DISPLAY", "EDITOR", "HOSTNAME",
    "SHELL", "LOGNAME",
})  # fmt: skip
_OF_A_JOB = ("JOBLENS_", "TORC_", "SLURM_", "PBS_", "LSB_", "PMIX_", "XDG_", "RAY_", "CELERY_")


def is_lasting_env(name: str) -> bool:
    """Returns whether the variable belongs to the machine or user, not to one session or job.

    Jobs that differ in no such variable share their recorded environment.
    """
    return name not in _OF_A_SESSION and not name.startswith(_OF_A_JOB) and is_allowed_env(name)


_WORD_OR_END = r"""(?s)(?P<word>(?:[^\s'"\\;|&()<>`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)|(?P<end>[;|&()\n`])"""
_QUOTED = r"""(?s)\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)\""""


class ShellWord(Struct, frozen=True):
    text: str  # unquoted, without shell expansions ($x)
    start: int
    end: int


def shell_commands(line: str) -> list[list[ShellWord]]:
    """Returns the simple commands of the line, in order. An open quote is an ordinary character."""
    commands: list[list[ShellWord]] = [[]]
    for match in re.finditer(_WORD_OR_END, line):
        if match["end"]:
            commands.append([])
        else:
            commands[-1].append(ShellWord(_unquoted(match["word"]), match.start(), match.end()))
    return [words for words in commands if words]


def quoted(text: str, like: str) -> str:
    """Quotes a word like the word `like`."""
    if like[:1] != '"' and "'" not in text:
        needs_none = like[:1] != "'" and not any(mark in ' \t\n\\";|&()<>`' for mark in text)
        return text if needs_none else f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(word: str) -> str:
    if not any(mark in word for mark in "'\"\\"):
        return word
    return re.sub(_QUOTED, _inner, word)


def _inner(match: re.Match[str]) -> str:
    escaped, single, double = match.groups()
    if double is not None:
        return re.sub(r'\\(["\\$`])', r"\1", double)
    return str(escaped if single is None else single)


_SIGNS = ("seed", "random_state", "random-state", "randomstate", "rng")
_NAMES = frozenset(
    {"seed", "seeds", "rng", "rngseed", "randomseed", "randomstate", "randstate", "seedvalue", "rngstate"}
)
_MOST = 16
_LONGEST = 64


def seeds_of(
    argv: Sequence[str], params: Mapping[str, Any] = {}, env: Mapping[str, str] = {}
) -> dict[str, str]:
    """Returns seeds by name, without dashes and without redacted ones.

    All arguments are redacted. Fast if no name mentions a seed.
    """
    found: dict[str, str] = {}
    text = " ".join(argv).lower()
    if any(sign in text for sign in _SIGNS):
        found.update(_seeds_in_argv(argv))
    for name, value in params.items():
        if is_seed_name(name) and isinstance(value, (int, float, str)) and not isinstance(value, bool):
            found[name] = str(value)
    found |= {name: value for name, value in env.items() if is_seed_name(name)}
    kept = {name: value for name, value in found.items() if REDACTED not in value}
    return {name: value for name, value in list(kept.items())[:_MOST] if 0 < len(value) <= _LONGEST}


def is_seed_name(name: str) -> bool:
    """Returns True for seed, random_state, --data-seed, PYTHONHASHSEED; False for seeded, seedling, paths."""
    lower = name.lower()
    if not any(sign in lower for sign in _SIGNS):
        return False
    words = _seed_words().findall(lower)
    return "".join(words) in _NAMES or (bool(words) and words[-1] in ("seed", "pythonhashseed"))


def _seeds_in_argv(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields seeds from `--seed 7`, `--seed=7`, `seed=7`, also within a shell line."""
    words = [word for each in argv for word in each.split()]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not is_seed_name(name):
            continue
        if equals and value:
            yield name.lstrip("-"), value
        elif name.startswith("-") and index + 1 < len(words) and not words[index + 1].startswith("--"):
            yield name.lstrip("-"), words[index + 1]


@cache
def _seed_words() -> re.Pattern[str]:
    return re.compile(r"[a-z]+")
