"""Comparison of commands (`joblens bench -- CMD`): repeated alternately until the result is precise.

In every round each command runs once, in random order, so that changes on the machine affect all of them.
It ends when the interval of every ratio is narrow enough, not when a difference shows: testing for that
after every round would find one sooner or later.
"""

import math
import os
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

import joblens
from joblens.agent.attempts.preparation import plain_words
from joblens.analysis.comparing.bench import (
    COMMANDS,
    CONFIDENCE,
    FORMAT,
    Document,
    comparison_form,
    half_width_of,
    metrics_form,
    run_form,
)
from joblens.app.bench.files import new_id
from joblens.app.jobs.api import Result, SequentialRunner
from joblens.app.jobs.preparation import SubmitEnvironment, prepare
from joblens.app.jobs.requests import Request, check_request
from joblens.app.wiring.machine import disturbances, system_info
from joblens.model.errors import BenchmarkError, InputError
from joblens.model.settings import Settings
from joblens.model.values.units import format_instant

LEAST_FOR_PRECISION = 6  # fewer pairs have no interval
MOST_ROUNDS = 1000


class BenchCommand(Struct, frozen=True):
    name: str
    request: Request


class AbPlan(Struct, frozen=True, kw_only=True):
    """The others are compared with the first command."""

    commands: tuple[BenchCommand, ...]
    title: str = ""
    warmup: int = 1
    rounds: int | None = None  # exact number; None: until precise enough or the time limit
    most_rounds: int = MOST_ROUNDS
    time_s: float = 60.0
    precision: float = 0.02  # half the width of the interval, relative
    confidence: float = CONFIDENCE
    seed: int | None = None  # of the order; None: random
    accepts_failures: bool = False
    prepare: tuple[str, ...] = ()  # run before each run, not measured


class AbProgress(Struct, frozen=True, kw_only=True):
    round: int  # 0 while warming up
    name: str
    spent_s: float
    half_width: float | None  # of the widest interval so far


Report = Callable[[AbProgress], None]


def command_of_line(name: str, line: str, **common: Any) -> BenchCommand:
    """Parses a line as people write it; it runs in a shell only if it needs one."""
    if not line.strip():
        raise InputError(f"command {name} is empty", hint="--command 'make test'")
    argv = plain_words(line)
    command = {"argv": argv} if argv else {"shell": line}
    return BenchCommand(name, Request(**command, **common))


def command_of_argv(name: str, argv: Sequence[str], **common: Any) -> BenchCommand:
    return BenchCommand(name, Request(argv=tuple(argv), **common))


def check_ab(plan: AbPlan) -> None:
    """Raises InputError for invalid options, before anything runs."""
    if not plan.commands:
        raise BenchmarkError("no command was given", hint="joblens bench -- COMMAND ARGUMENTS…")
    names = [command.name for command in plan.commands]
    if len(set(names)) != len(names):
        raise BenchmarkError(f"several commands have the same name: {', '.join(names)}")
    for command in plan.commands:
        check_request(command.request)
    if not 0 < plan.precision < 1:
        raise BenchmarkError(f"precision {plan.precision:g}: expected a share such as 2%")
    if not 0.5 <= plan.confidence < 1:
        raise BenchmarkError(f"confidence {plan.confidence:g}: expected a share such as 95%")
    if plan.rounds is not None and plan.rounds < 1:
        raise BenchmarkError(f"runs {plan.rounds}: at least 1")


class _Round(Struct):
    """Measurements so far."""

    runs: dict[str, list[Document]]
    rounds: int = 0
    stopped: str = ""
    failure: str = ""
    shown: dict[str, Document] = {}


def run_ab(plan: AbPlan, settings: Settings, report: Report) -> Document:
    """Returns the document of kind 'commands'. An interrupt ends it with the results so far."""
    check_ab(plan)
    seed = plan.seed if plan.seed is not None else int.from_bytes(os.urandom(4))
    system, created = system_info(), time.time_ns() // 1000
    so_far = _Round(runs={command.name: [] for command in plan.commands})
    with SequentialRunner(settings) as jobs:
        bench = _Bench(plan, settings, jobs, report, so_far)
        try:
            bench.warm_up()
            bench.measure(random.Random(seed))  # noqa: S311 - an order, not a secret
        except KeyboardInterrupt:
            so_far.stopped = "interrupt"
        except _RunFailed as error:
            so_far.stopped, so_far.failure = "failure", str(error)
    return _document(plan, so_far, seed, system, format_instant(created))


class _RunFailed(Exception):
    pass


class _Bench:
    def __init__(
        self, plan: AbPlan, settings: Settings, jobs: SequentialRunner, report: Report, so_far: _Round
    ) -> None:
        self._plan, self._settings, self._jobs, self._report = plan, settings, jobs, report
        self._so_far = so_far
        self._here = SubmitEnvironment.here()
        for command in plan.commands:  # including those that never run, because an earlier one fails
            job = prepare(command.request, settings, self._here).job
            so_far.shown[command.name] = {"command": list(job.argv), "is_shell": job.is_shell}
        self._began_s = self._measured_from_s = time.monotonic()
        self._half_width: float | None = None

    def warm_up(self) -> None:
        for _ in range(self._plan.warmup):
            for command in self._plan.commands:
                if self._is_late():
                    return
                self._run(command, 0)

    def measure(self, rng: random.Random) -> None:
        self._measured_from_s = time.monotonic()
        so_far = self._so_far
        while not (stopped := self._why_stop()):
            order = list(self._plan.commands)
            rng.shuffle(order)
            ran = [(command, self._run(command, so_far.rounds + 1)) for command in order]
            so_far.rounds += 1  # only whole rounds count: otherwise the last could favour one command
            for command, result in ran:
                self._keep(command.name, result)
            self._half_width = self._widest()
        so_far.stopped = stopped

    def _why_stop(self) -> str:
        plan, done = self._plan, self._so_far.rounds
        if plan.rounds is not None:
            return "runs" if done >= plan.rounds else ""
        if done >= plan.most_rounds:
            return "runs"
        if (
            done >= LEAST_FOR_PRECISION
            and self._half_width is not None
            and self._half_width <= plan.precision
        ):
            return "precision"
        if not done:
            return ""  # without a round there is no result
        one_more_s = (time.monotonic() - self._measured_from_s) / done
        return "time" if self._is_late(one_more_s) else ""

    def _is_late(self, with_s: float = 0.0) -> bool:
        """Warming up counts: users wait from the start."""
        plan = self._plan
        return plan.rounds is None and time.monotonic() - self._began_s + with_s > plan.time_s

    def _run(self, command: BenchCommand, round_number: int) -> Result:
        spent = time.monotonic() - self._began_s
        self._report(
            AbProgress(round=round_number, name=command.name, spent_s=spent, half_width=self._half_width)
        )
        if self._plan.prepare:
            _run_prepare(self._plan.prepare)
        prepared = prepare(command.request, self._settings, self._here)
        result = self._jobs.run(prepared)
        if result.record.attempt is None or not (result.ok or self._plan.accepts_failures):
            outcome = result.record.outcome
            why = (outcome.error if outcome else None) or f"exit code {result.returncode}"
            tail = outcome.stderr_tail.strip().rpartition("\n")[2] if outcome else ""
            status = "" if result.status == "error" else f"{result.status}: "
            raise _RunFailed(f"{command.name}: {status}{why}" + (f": {tail}" if tail not in why else ""))
        return result

    def _keep(self, name: str, result: Result) -> None:
        runs = self._so_far.runs[name]
        form = run_form(result.record, len(runs) + 1)
        if self._plan.accepts_failures:
            form["success"] = True  # any exit code is accepted
        runs.append({**form, "round": self._so_far.rounds})

    def _widest(self) -> float | None:
        """Computed every round at first, later every tenth: with many runs it is slow."""
        rounds = self._so_far.rounds
        if rounds < LEAST_FOR_PRECISION or (rounds > 40 and rounds % 10):
            return self._half_width
        variants = [{"name": name, "runs": runs} for name, runs in self._so_far.runs.items()]
        if len(variants) == 1:
            return _own_width(metrics_form(variants[0]["runs"], self._plan.confidence))  # type: ignore[arg-type]
        widths = [
            half_width_of(
                comparison_form(one, variants[0], are_rounds=True, confidence=self._plan.confidence)[
                    "numbers"
                ]["duration_seconds"]
            )
            for one in variants[1:]
        ]
        return max((width for width in widths if width is not None), default=None)


def _own_width(metrics: Document) -> float | None:
    low, high = metrics["median_duration_low"], metrics["median_duration_high"]
    return math.sqrt(high / low) - 1 if low else None


def _run_prepare(argv: tuple[str, ...]) -> None:
    try:
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError as error:
        raise BenchmarkError(f"--prepare {shlex.join(argv)}: command not found") from error
    except OSError as error:
        raise BenchmarkError(f"--prepare {shlex.join(argv)}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise _RunFailed(f"--prepare {shlex.join(argv)}: exit code {error.returncode}") from error


def _document(plan: AbPlan, so_far: _Round, seed: int, system: dict[str, Any], created_time: str) -> Document:
    variants = [
        {
            "name": command.name,
            **so_far.shown[command.name],
            "metrics": metrics_form(so_far.runs[command.name], plan.confidence),
            "runs": so_far.runs[command.name],
        }
        for command in plan.commands
    ]
    title = plan.title or _title(variants)
    return {
        "format": FORMAT,
        "kind": COMMANDS,
        "id": new_id(title, created_time),
        "title": title,
        "created_time": created_time,
        "joblens_version": joblens.__version__,
        "system_info": system,
        "disturbances": disturbances(system),
        "warmup": plan.warmup,
        "rounds": so_far.rounds,
        "stopped": so_far.stopped,
        "failure": so_far.failure or None,
        "precision": plan.precision,
        "confidence": plan.confidence,
        "seed": seed,
        "baseline": plan.commands[0].name,
        "variants": variants,
        "comparisons": [
            comparison_form(variant, variants[0], are_rounds=True, confidence=plan.confidence)
            for variant in variants[1:]
        ],
    }


def _title(variants: Sequence[Document]) -> str:
    names = []
    for variant in variants:
        argv = variant["command"][0].split() if variant["is_shell"] else variant["command"]
        names.append(os.path.basename(argv[0]) if argv else variant["name"])
    return "-".join(dict.fromkeys(names))
