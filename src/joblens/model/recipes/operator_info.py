"""What is known of an operator without running it."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType


class ParameterInfo(Struct, frozen=True, kw_only=True):
    name: str
    type: str  # in words
    meaning: str = ""
    default: Any | UnsetType = UNSET  # UNSET: it has to be given
    is_required: bool = False


class OperatorInfo(Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # mapper, filter, deduplicator, selector
    summary: str
    parameters: tuple[ParameterInfo, ...] = ()
    shared_parameters: tuple[ParameterInfo, ...] = ()  # that all operators of its kind take
    needs: str = ""
    source: str = ""  # the file or package of an operator that is not joblens' own
    problem: str = ""  # why it cannot be used here
