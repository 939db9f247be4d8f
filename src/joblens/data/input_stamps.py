"""Whether the inputs of a job are still what they were."""

from collections.abc import Sequence

from joblens.model.recipe import InputFile


def stamp_inputs(paths: Sequence[str]) -> tuple[InputFile, ...]:
    raise NotImplementedError


def changed_inputs(before: Sequence[InputFile], now: Sequence[InputFile]) -> list[str]:
    """One sentence for each file that is gone, new or other than it was; empty: nothing changed."""
    raise NotImplementedError
