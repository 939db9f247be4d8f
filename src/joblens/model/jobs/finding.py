"""Something a person should act on."""

import enum

from msgspec import Struct


class Severity(enum.StrEnum):
    INFO = "info"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True, omit_defaults=True):
    """`code` is stable and listed in docs/findings.md; `text` says what happened, `advice` what to do."""

    code: str
    severity: Severity
    text: str
    advice: str = ""
