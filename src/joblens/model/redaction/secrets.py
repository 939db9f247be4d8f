"""Redaction of passwords, tokens and keys before anything is stored.

By name (`--password x`, `DB_TOKEN=x`, {"api_key": x}), by pattern (AWS keys, bearer tokens, passwords in
URLs, private keys, …), and for the environment by an allow-list: other variables are recorded as set, without
their value. A plain command costs a few substring searches; patterns are compiled at the first suspicion.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.job import Job, Outcome
from joblens.model.redaction.names import REDACTED, is_allowed_env, is_secret_name

__all__ = [
    "NO_SECRETS",
    "REDACTED",
    "SecretValues",
    "is_secret_name",
    "may_hold_secret",
    "recorded_env",
    "redact_address",
    "redact_argv",
    "redact_env",
    "redact_job",
    "redact_params",
    "redact_text",
    "secret_values",
]

_LEAST_LENGTH = 4
_NO_NAMES: Mapping[str, str] = {}

# User-written fields of a job, and fields derived from them.
_TEXTS = ("name", "tool", "script", "tags", "external_id", "argv", "params", "env", "seeds", "notify",
          "inputs", "outputs")  # fmt: skip

_TEXTS_OF_OUTCOMES = (
    "error", "stderr_tail", "stdout_tail", "findings", "profile", "inputs", "outputs", "artifacts",
)  # fmt: skip

T = TypeVar("T")

# No rule below matches a text without any of these (in lower case).
_HINTS = (
    *(
        "pass",
        "pwd",
        "secret",
        "token",
        "key",
        "cred",
        "auth",
        "cookie",
        "bearer",
        "jwt",
        "signature",
        "sig=",
    ),
    *("://", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "sk-"),
    *("hf_", "npm_", "aiza", "eyj", "private key", "hooks.slack.com", "curl", "wget", "mysql", "maria"),
    *("redis-cli", "docker", "podman"),
)

# Secret names may also have harmless values (ffmpeg's -pass 2), which are kept.
_HARMLESS_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "none", "null"})

# Options of programs whose value, joined or the next word, is a secret.
_TOOL_OPTIONS = {
    "sshpass": ("-p",),
    "redis-cli": ("-a",),
    "docker": ("-p",),
    "podman": ("-p",),
    "mysql": ("-p",),
    "mysqldump": ("-p",),
    "mysqladmin": ("-p",),
    "mariadb": ("-p",),
    "mariadb-dump": ("-p",),
    "curl": ("-u", "--user", "-U", "--proxy-user"),
    "wget": ("-u", "--user"),
}
_JOINED_ONLY = frozenset({"mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"})
_USER_AND_PASSWORD = frozenset({"curl", "wget"})
_LOGIN_ONLY = frozenset({"docker", "podman"})


def redact_job(job: Job) -> Job:
    """Returns the job as it may be stored."""
    return replace(
        job,
        name=redact_text(job.name),
        tool=redact_text(job.tool),
        script=redact_text(job.script),
        tags=tuple(map(redact_text, job.tags)),
        external_id=redact_text(job.external_id) if job.external_id else job.external_id,
        argv=redact_argv(job.argv),
        params=redact_params(job.params),
        env=redact_env(job.env),
        seeds={name: value for name, value in redact_params(job.seeds).items() if REDACTED not in value},
        notify=redact_argv(job.notify),
    )


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    if not may_hold_secret("\0".join(argv)):
        return tuple(argv)
    redacted: list[str] = []
    tool = ""
    secret_comes = has_login = False
    for index, argument in enumerate(argv):
        has_login = has_login or argument == "login"
        if secret_comes and not _is_option(argument):
            redacted.append(_tool_value(tool, argument) if tool else REDACTED)
            secret_comes, tool = False, ""
            continue
        secret_comes = False
        if _program(argument) in _TOOL_OPTIONS:
            tool = _program(argument)
        if tool and argument.startswith("-"):
            text, secret_comes = _tool_option(tool, argument, has_login=has_login)
            if secret_comes or text != argument:
                redacted.append(text)
                tool = tool if secret_comes else ""
                continue
        name, equals, value = argument.partition("=")
        is_shell_line = index == 0 or argv[index - 1] in (
            "-c",
            "-lc",
            "-ec",
        )  # sh -c, bash -lc: `A=1 run` continues
        if equals and not is_shell_line and _is_name(name) and _hides(name, value):
            redacted.append(f"{name}={REDACTED}")
            continue
        if not equals and _is_option(argument) and is_secret_name(argument):
            tool, secret_comes = "", _hides(argument, argv[index + 1] if index + 1 < len(argv) else "")
        redacted.append(redact_text(argument))
    return tuple(redacted)


def redact_params(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _redact_value(name, value) for name, value in params.items()}


def recorded_env(env: Mapping[str, str], is_wanted: Callable[[str], bool] = is_allowed_env) -> dict[str, str]:
    """Returns the wanted variables, all of which are on the allow-list, with patterns redacted."""
    return {name: redact_text(value) for name, value in env.items() if is_wanted(name)}


def redact_env(env: Mapping[str, str]) -> dict[str, str]:
    """Keeps values of variables on the allow-list, with patterns redacted; of others only the name."""
    return {
        name: redact_text(value) if is_allowed_env(name) else REDACTED if value else value
        for name, value in env.items()
    }


def redact_text(text: str) -> str:
    """Redacts secrets inside a longer text: a shell line, a URL, a header, JSON."""
    if not may_hold_secret(text):
        return text
    if " " in text and any(tool in text for tool in _TOOL_OPTIONS):
        text = _redact_shell_line(text)
    for pattern, replacement in _patterns():
        text = pattern.sub(replacement, text)
    return _hide_assignments(text)


def redact_address(address: str) -> str:
    """Redacts the login of a repository's or server's address.

    A name without a password before a path (git@host:path) is part of the address.
    """
    scheme, is_url, rest = address.partition("://")
    if not is_url:
        return redact_text(address)
    server = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, colon, port = server.partition(":")
    if "@" in rest[len(server) :] and colon and not port.isdigit():
        if "@" in server:
            return f"{scheme}://{REDACTED}"  # the end of its password is unknown
        server = rest  # its apparent path belongs to a password
    return redact_text(f"{scheme}://{rest[server.rfind('@') + 1 :]}")


def _redact_shell_line(line: str) -> str:
    """Redacts options whose names are not secret: curl -u, mysql -p, …"""
    from joblens.model.redaction.names import quoted, shell_commands

    parts, position = [], 0
    for words in shell_commands(line):
        if not any(_program(word.text) in _TOOL_OPTIONS or " " in word.text for word in words):
            continue
        for word, redacted in zip(words, redact_argv([word.text for word in words]), strict=True):
            if redacted != word.text:
                parts += [line[position : word.start], quoted(redacted, like=line[word.start : word.end])]
                position = word.end
    return "".join([*parts, line[position:]])


def _redact_value(name: str, value: Any, *, is_secret: bool = False) -> Any:
    """Redacts a value. `is_secret`: an enclosing name is secret; then all content is redacted, whatever its
    structure."""
    is_secret = is_secret or (may_hold_secret(name) and is_secret_name(name))
    if isinstance(value, Mapping):
        return {key: _redact_value(str(key), inner, is_secret=is_secret) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_value("", inner, is_secret=is_secret) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if is_secret:
        return value if _is_harmless(str(value)) else REDACTED
    return redact_text(value) if isinstance(value, str) else value


def _hides(name: str, value: str) -> bool:
    return not _is_harmless(value) and is_secret_name(name)


def _is_harmless(value: str) -> bool:
    return not value or value.lower() in _HARMLESS_VALUES or (value.isdigit() and len(value) <= 3)


class SecretValues:
    """Secret values, hidden wherever they occur because a parameter with a secret name has them."""

    def __init__(self, shown: Mapping[str, str], names: Mapping[str, str] = _NO_NAMES) -> None:
        """`shown`: secret -> replacement. Short secrets are not searched for: they match by chance.
        `names`: names of jobs and files that contain one -> replacement, which may be equal.
        """
        self.names = dict(names)
        self.placeholders = dict(shown)  # including short secrets, for whole values
        self.shown = {
            secret: shown[secret]
            for secret in sorted(shown, key=len, reverse=True)
            if len(secret) >= _LEAST_LENGTH
        }
        self._pattern = re.compile("|".join(map(re.escape, self.shown))) if self.shown else None

    def __bool__(self) -> bool:
        return bool(self.shown)

    def __or__(self, other: "SecretValues") -> "SecretValues":
        return SecretValues(other.placeholders | self.placeholders, other.names | self.names)

    def hide(self, value: T) -> T:
        """Returns the value without secrets at any depth: text, list, mapping or struct. Keys of mappings
        are kept."""
        return value if self._pattern is None else self._hide(value)

    def _hide(self, value: Any, *, keys: bool = False) -> Any:
        """Replaces secrets at any depth. `keys`: also in keys of mappings, which may be user text."""
        if isinstance(value, str) and not isinstance(value, Enum):
            assert self._pattern is not None
            if value in self.names:
                return self.names[value]
            return self._pattern.sub(lambda match: self.shown[match[0]], value)
        if isinstance(value, Mapping):
            return {
                self._hide(name) if keys else name: self._hide(inner, keys=keys)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)([self._hide(inner, keys=keys) for inner in value])
        if isinstance(value, Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            changes = {
                name: hidden for name, inner in fields.items() if (hidden := self._hide(inner)) != inner
            }
            return replace(value, **changes) if changes else value
        return value

    def hide_in_outcome(self, outcome: Outcome) -> Outcome:
        texts = {name: self.hide(getattr(outcome, name)) for name in _TEXTS_OF_OUTCOMES}
        return replace(outcome, **texts) if self else outcome

    def hide_in_job(self, job: Job) -> Job:
        """Returns the job as it may be stored. Its directories are kept: it is rerun from there."""
        if not self:
            return job
        hidden = {name: self._hide(getattr(job, name), keys=name == "params") for name in _TEXTS}
        return replace(job, **hidden)


NO_SECRETS = SecretValues({})


def secret_values(params: Mapping[str, Any]) -> SecretValues:
    """Returns the values that are secret by the names of their parameters."""
    found: dict[str, str] = {}
    _find_secrets(params, redact_params(params), found)
    return SecretValues(found)


def _find_secrets(before: Any, after: Any, found: dict[str, str]) -> None:
    if isinstance(after, dict):
        for name, inner in after.items():
            _find_secrets(before[name], inner, found)
    elif isinstance(after, list):
        for one, inner in zip(before, after, strict=True):
            _find_secrets(one, inner, found)
    elif after == REDACTED and before != REDACTED:
        found[str(before)] = REDACTED


def may_hold_secret(text: str) -> bool:
    """Returns False if no rule can match. Cheap."""
    lower = text.lower()
    for hint in _HINTS:  # noqa: SIM110 - a generator costs more than the search
        if hint in lower:
            return True
    return False


def _is_option(argument: str) -> bool:
    return len(argument) > 1 and argument[0] == "-" and not argument[1].isdigit()


def _is_name(text: str) -> bool:
    return text.lstrip("-").replace("-", "_").replace(".", "_").isidentifier()


def _program(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _tool_option(tool: str, argument: str, *, has_login: bool) -> tuple[str, bool]:
    """Returns (the option with its joined secret removed, whether the secret is the next word)."""
    if tool in _LOGIN_ONLY and not has_login:
        return argument, False
    for option in _TOOL_OPTIONS[tool]:
        is_last_of_several = tool == "curl" and argument[1:].isalpha() and argument[-1:] == option[1:]
        if argument == option or is_last_of_several:
            return argument, tool not in _JOINED_ONLY
        joined = argument.removeprefix(option)
        if len(option) == 2 and joined != argument and not argument.startswith("--"):
            return option + _tool_value(tool, joined), False
        if len(option) > 2 and argument.startswith(f"{option}="):
            return f"{option}={_tool_value(tool, joined[1:])}", False
    return argument, False


def _tool_value(tool: str, value: str) -> str:
    """Redacts the value of an option. curl -u takes user:password; a user alone is not secret."""
    if tool not in _USER_AND_PASSWORD:
        return REDACTED
    user, colon, _ = value.partition(":")
    return f"{user}:{REDACTED}" if colon else value


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return (
        # private keys, whole or truncated
        (
            re.compile(
                r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
            ),
            rf"\1{REDACTED}\2",
        ),
        # https://user:password@host and https://token@host
        # (as git and curl read them: up to the last @ before the path)
        (re.compile(r"((?<![\w+.-])[\w+.-]++://[^/\s:'\"]*):[^/\s'\"]+@"), rf"\1:{REDACTED}@"),
        (re.compile(r"((?<![\w+.-])[\w+.-]++://)[^/\s:'\"]{16,}@"), rf"\1{REDACTED}@"),
        # Authorization: Bearer …
        (
            re.compile(
                r"(\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|token|digest)\s+)?)[^\s'\",]+",
                re.IGNORECASE,
            ),
            rf"\1{REDACTED}",
        ),
        (re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/-]{8,}=*", re.IGNORECASE), rf"\1{REDACTED}"),
        (re.compile(r"(\b(?:set-)?cookie\s*:\s*)[^'\"\r\n]+", re.IGNORECASE), rf"\1{REDACTED}"),
        # tokens recognizable by their form
        (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), REDACTED),
        (
            re.compile(r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_\w{30,}|hf_\w{20,})"),
            REDACTED,
        ),
        (re.compile(r"\bxox[a-z]-[\w-]{10,}"), REDACTED),
        (re.compile(r"\b[sr]k-[\w-]{20,}|\b[sr]k_(?:live|test)_\w{16,}"), REDACTED),
        (re.compile(r"\bAIza[\w-]{30,}"), REDACTED),
        (re.compile(r"\beyJ(?:(?!-eyJ)[\w-]){8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
        (re.compile(r"(hooks\.slack\.com/services/)[^\s'\"]+"), rf"\1{REDACTED}"),
    )


@cache
def _assignments() -> re.Pattern[str]:
    """Matches name=, name: and --name before a value, for names that may be secret."""
    words = "pass|pwd|secret|token|key|cred|auth|cookie|jwt|bearer|sig"
    quote = r"""(?:\\{0,7}['"])?"""  # \" in the JSON of a shell line, \\\" in the JSON of that
    name = rf"""(?<![\w-])(?:--?)?+{quote}(?=[\w-]*(?:{words}))[\w-]++{quote}"""
    return re.compile(rf"(?P<name>{name})(?P<between>\s*[=:]\s*|\s+)(?=[^\s&;|)}}\]])", re.IGNORECASE)


@cache
def _values() -> re.Pattern[str]:
    return re.compile(
        r"""\[[^\[\]]*\]|(?P<quote>")(?:[^"\\]|\\.)*"|(?P<single>')[^']*'"""
        r"""|(?P<escaped>\\{1,7}["']).*?(?<!\\)(?P=escaped)"""
        r"""|(?P<open>\\{0,7}["'])[^\r\n]*"""  # truncated
        r"""|[^\s&;"'|)}\]]+"""
    )


def _hide_assignments(text: str) -> str:
    parts = []
    position = 0
    while (match := _assignments().search(text, position)) is not None:
        value = _value_to_hide(text, match)
        if value is None:  # a harmless name may precede a secret one
            end = match.end("name")
            parts.append(text[position:end])
        else:
            end = value.end()
            quote = value["quote"] or value["single"] or value["escaped"] or ""
            parts.append(f"{text[position : value.start()]}{value['open'] or quote}{REDACTED}{quote}")
        position = end
    return "".join([*parts, text[position:]])


def _value_to_hide(text: str, match: re.Match[str]) -> re.Match[str] | None:
    """Checks the name before it reads the value: a long value after many names is then read once."""
    name = match["name"].strip("'\"\\")
    head = text[match.end() : match.end() + 8].lstrip("[ '\"\\")
    if not match["between"].strip() and (not name.startswith("-") or head.startswith("-")):
        return None  # words of a sentence, or two options
    if head.startswith(REDACTED) or not is_secret_name(name):
        return None
    value = _values().match(text, match.end())
    if value is None:
        return None
    bare = value[0].strip("[ ]'\"\\")
    if bare.lower() in ("bearer", "basic", "token", "digest"):
        return None  # the secret follows and is already redacted
    return value if _hides(name, bare) else None
