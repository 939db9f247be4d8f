"""From what was typed to a Request: every value checked before anything is started."""

from typing import Any

from joblens.app.jobs import Request, parse_early_signal, parse_env, parse_notify, parse_params
from joblens.model.errors import InputError
from joblens.model.job import Accounting, Granularity, Requirements
from joblens.model.units import parse_duration, parse_size


def request_from(given: dict[str, Any], *, background: bool) -> Request:
    """Checks every value before anything is started."""
    if given["cpus"] is not None and not 0 < given["cpus"] < 1_000_000:
        raise InputError(f"--cpus {given['cpus']:g}: must be a number of CPUs, more than 0")
    interval_s = _duration(given["interval"], "--interval")
    if interval_s is not None and interval_s < 0.05:
        raise InputError(
            f"--interval {given['interval']}: at least 50ms", hint="sampling faster costs more than it tells"
        )
    return Request(
        argv=given["command_line"],
        shell=given["shell"],
        name=given["name"],
        tool=given["tool"],
        script=given["script"],
        external_id=given["external_id"],
        params=parse_params(given["params"]),
        tags=given["tags"],
        env=parse_env(given["env"]),
        cwd=given["cwd"],
        requirements=Requirements(
            cpus=given["cpus"],
            memory_bytes=_size(given["memory"], "--memory"),
            gpus=given["gpus"],
            pids=given["pids"],
            timeout_s=_duration(given["timeout"], "--timeout"),
        ),
        enforce=False if given["no_enforce"] else None,
        accounting=Accounting(given["accounting"]) if given["accounting"] else None,
        monitor=False if given["no_monitor"] else None,
        granularity=Granularity(given["granularity"]),
        interval_s=interval_s,
        grace_s=_duration(given["grace"], "--grace", zero_is_fine=True),
        early_signal=parse_early_signal(given["early_signal"]) if given["early_signal"] else None,
        output_dir=given["output_dir"],
        notify=parse_notify(given["notify"]),
        background=background,
    )


def _duration(text: str | None, option: str, *, zero_is_fine: bool = False) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except InputError as error:
        raise InputError(f"{option}: {error}", hint=error.hint) from error
    if seconds <= 0 and not zero_is_fine:
        raise InputError(f"{option} {text}: must be more than 0")
    return seconds


def _size(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except OverflowError:
        raise InputError(f"{option}: '{text[:20]}…' is larger than any memory") from None
    except InputError as error:
        raise InputError(f"{option}: {error}", hint=error.hint) from error
    if size <= 0:
        raise InputError(f"{option} {text}: must be more than 0")
    return size
