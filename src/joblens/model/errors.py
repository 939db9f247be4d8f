"""The one tree of errors. The class says what kind of thing went wrong, the message says what,
where and what to do next. `exit_code` is what the command line ends with."""

from collections.abc import Sequence
from typing import Any


class JoblensError(Exception):
    """joblens could not do what was asked."""

    exit_code = 125

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").split("\n", 1)[0])
        self.hint = hint


class InputError(JoblensError):
    """What was typed or written cannot be used as it stands."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration file or environment variable has a key or value joblens does not know."""


class UnknownJob(InputError):
    """No job has that id."""


class AmbiguousJob(InputError):
    """Several jobs match that id prefix."""


class UnknownWorkflow(InputError):
    """No workflow has that id."""


class UnknownRun(InputError):
    """No run has that id."""


class AmbiguousRun(InputError):
    """Several workflows or runs match that id."""


class SpecError(InputError):
    """A workflow file has mistakes; the message lists all of them with their places."""

    def __init__(self, message: str = "", *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems) or (str(self),)


class BatchRefused(SpecError):
    """A batch of added jobs has mistakes; `found`: each with its path in the batch."""

    def __init__(self, found: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        texts = [_located(path, text) for path, text in found]
        message = (
            texts[0] if len(texts) == 1 else "\n  ".join([f"{len(texts):,} problems in the batch:", *texts])
        )
        super().__init__(message, problems=texts)
        self.found = tuple(found)


def _located(path: tuple[str | int, ...], text: str) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{where}: {text}" if where else text


class PlanError(InputError):
    """A workflow cannot be run as asked: a job that can never fit, a file that is missing, a wrong choice."""

    lacks: tuple[Any, ...] = ()  # model.fitting.Lack of each job that can never fit


class RecoveryRefused(JoblensError):
    """The recovery hook failed, so that nothing was changed."""

    exit_code = 1


class RunIsDriven(InputError):
    """Another process is running that run."""


class RecipeError(InputError):
    """A recipe cannot be used as it stands: a key, an operator, a parameter, a dataset."""

    def __init__(self, message: str = "", *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems) or (str(self),)


class UnknownOperator(RecipeError):
    """No operator has that name."""


class ToolError(InputError):
    """A tool's file has mistakes, or the tool cannot run what it was given."""


class UnknownTool(ToolError):
    """There is no tool of that name."""


class BenchmarkError(InputError):
    """A benchmark cannot be run or read as asked."""


class JobIsRunning(InputError):
    """Another process is carrying that recipe's job out."""


class FormatError(InputError):
    """A file to import is not in the form it was said to be in."""


class MissingExtra(InputError):
    """The feature needs an optional dependency that is not installed."""


def how_to_install(extra: str) -> str:
    """The line for each way joblens may have been installed: from an index, and from a checkout."""
    return f"pip install 'joblens[{extra}]', or in a checkout: scripts/install .venv -e '.[{extra}]'"


class ProbeError(JoblensError):
    """Something about the machine could not be read."""


class AccountingUnavailable(JoblensError):
    """The accounting mode that was asked for cannot be had on this machine."""


class LaunchError(JoblensError):
    """The job could not be started."""


class CommandNotFound(LaunchError):
    """The command does not exist."""

    exit_code = 127


class CommandNotExecutable(LaunchError):
    """The command exists but cannot be executed."""

    exit_code = 126


class ContainerError(LaunchError):
    """A container engine could not do what was asked, or did not answer."""

    def __init__(self, message: str = "", *, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status  # of the engine's answer; 0: there was none


class LauncherLost(LaunchError):
    """The launcher process ended before it told how the job went."""


class JobCannotGoOn(JoblensError):
    """Something that the whole job of a recipe needs failed for good."""

    exit_code = 1


class BadRow(JoblensError):
    """A row cannot be worked on, and the recipe wants no row left out."""

    exit_code = 1


class BrokenOperator(JoblensError):
    """An operator fails on nearly every row, for the same reason: it is the operator, not the rows."""

    exit_code = 1


class SupervisorError(JoblensError):
    """The background supervisor could not be started or did not answer."""


class BrokerError(JoblensError):
    """The broker cannot be reached or refuses what is asked. Jobs stay in the store."""


class PlacingError(JoblensError):
    """A cluster cannot be reached, or refuses what it was asked for."""


class StoreError(JoblensError):
    """The store could not be read or written."""


class StoreTooNew(StoreError):
    """The store was written by a newer joblens; this one refuses to touch it."""


class StoreVanished(StoreError):
    """The store file was removed or replaced while it was in use."""


class StoreCorrupt(StoreError):
    """The store file is damaged."""
