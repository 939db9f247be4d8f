"""Errors of joblens, one tree. The class is the kind of error; the message says what is wrong and what to do.
`exit_code` is the exit code of the command line, `http_status` the status of a server's answer."""

from collections.abc import Sequence
from typing import Any, Self

_MOST_SHOWN = 50  # mistakes of one file


class JoblensError(Exception):
    """The operation failed."""

    exit_code = 125
    http_status = 500

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").split("\n", 1)[0])
        self.hint = hint


class InputError(JoblensError):
    """Invalid input."""

    exit_code = 2
    http_status = 400


class ConfigError(InputError):
    """A configuration file or environment variable has an unknown key or an invalid value."""


class UnknownJob(InputError):
    """No job has that id."""

    http_status = 404


class DeletedJob(UnknownJob):
    """The job with that id was deleted."""


class AmbiguousJob(InputError):
    """Several jobs match that id prefix."""

    http_status = 409


class UnknownWorkflow(InputError):
    """No workflow has that id."""

    http_status = 404


class UnknownRun(InputError):
    """No run has that id."""

    http_status = 404


class AmbiguousRun(InputError):
    """Several workflows or runs match that id."""

    http_status = 409


class _FileMistakes(InputError):
    """A file has mistakes; the message lists them with their positions."""

    http_status = 422

    def __init__(self, message: str = "", *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems) or (str(self),)

    @classmethod
    def of(cls, path: str, problems: Sequence[str], hint: str = "") -> Self:
        if len(problems) == 1:
            return cls(problems[0], problems=problems, hint=hint)
        shown = [f"  {problem}" for problem in problems[:_MOST_SHOWN]]
        if len(problems) > _MOST_SHOWN:
            shown.append(f"  … and {len(problems) - _MOST_SHOWN:,} more")
        message = "\n".join([f"{len(problems):,} problems in {path}:", *shown])
        return cls(message, problems=problems, hint=hint)


class SpecError(_FileMistakes):
    """A workflow file has mistakes; the message lists all of them with their positions."""


class BatchRefused(SpecError):
    """A batch of added jobs has mistakes; `found`: each with its path in the batch."""

    http_status = 422

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
    """A workflow cannot run: a job can never fit, a file is missing, or an option does not apply."""

    http_status = 422

    lacks: tuple[Any, ...] = ()  # model.fitting.Lack of each job that can never fit


class RecoveryRefused(JoblensError):
    """The recovery hook failed; nothing was changed."""

    exit_code = 1


class RunIsDriven(InputError):
    """Another process drives that run."""

    http_status = 409


class RecipeError(_FileMistakes):
    """A recipe has a mistake: a key, an operator, a parameter, or a dataset."""


class UnknownOperator(RecipeError):
    """No operator has that name."""


class ToolError(InputError):
    """A tool's file has mistakes, or its input is invalid."""

    http_status = 422


class UnknownTool(ToolError):
    """No tool has that name."""

    http_status = 404


class BenchmarkError(InputError):
    """A benchmark cannot be run or read."""


class JobIsRunning(InputError):
    """Another process runs that recipe's job."""

    http_status = 409


class FormatError(InputError):
    """A file to import does not have the given format."""


class MissingExtra(InputError):
    """The feature needs an optional dependency that is not installed."""

    http_status = 501


def how_to_install(extra: str) -> str:
    """Returns the command for an installation from an index and for one from a checkout."""
    return f"pip install 'joblens[{extra}]', or in a checkout: scripts/install .venv -e '.[{extra}]'"


class SignInRequired(InputError):
    """The server needs a valid token or a session."""

    http_status = 401


class AccessDenied(InputError):
    """The role of the token does not allow that."""

    http_status = 403


class UnknownToken(InputError):
    """No access token has that id."""

    http_status = 404


class UnknownBenchmark(BenchmarkError):
    """No benchmark of that name has results."""

    http_status = 404


class Conflict(InputError):
    """The request conflicts with the current state."""

    http_status = 409


class IncompatibleServer(InputError):
    """The versions of the server and this joblens differ too much."""


class ServeError(JoblensError):
    """The server cannot start: an address, a certificate or a socket cannot be used."""


class PrintError(JoblensError):
    """Chromium could not print the report."""

    exit_code = 1


class ProbeError(JoblensError):
    """A measurement of the machine could not be read."""


class AccountingUnavailable(JoblensError):
    """The requested accounting mode is not available on this machine."""


class LaunchError(JoblensError):
    """The job could not be started."""


class CommandNotFound(LaunchError):
    """The command does not exist."""

    exit_code = 127


class CommandNotExecutable(LaunchError):
    """The command exists but cannot be executed."""

    exit_code = 126


class ContainerError(LaunchError):
    """A container engine failed or did not answer."""

    def __init__(self, message: str = "", *, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status  # of the engine's answer; 0: there was none


class LauncherLost(LaunchError):
    """The launcher process ended before it reported the job's result."""


class JobCannotGoOn(JoblensError):
    """A step that a recipe's whole job needs failed permanently."""

    exit_code = 1


class BadRow(JoblensError):
    """A row cannot be processed, and the recipe does not allow rejected rows."""

    exit_code = 1


class BrokenOperator(JoblensError):
    """An operator fails on nearly every row for the same reason, so the operator is at fault."""

    exit_code = 1


class SupervisorError(JoblensError):
    """The background supervisor could not be started or did not answer."""

    http_status = 503


class BrokerError(JoblensError):
    """The broker is unreachable or refuses a request. Jobs stay in the store."""

    http_status = 503


class PlacingError(JoblensError):
    """A cluster is unreachable or refuses a request."""

    http_status = 503


class StoreError(JoblensError):
    """The store could not be read or written."""

    http_status = 503


class ServerUnreachable(StoreError):
    """The server could not be reached or did not answer."""


class StoreTooNew(StoreError):
    """The store was written by a newer joblens; this one refuses to touch it."""


class StoreVanished(StoreError):
    """The store file was removed or replaced while it was in use."""


class StoreCorrupt(StoreError):
    """The store file is damaged."""
