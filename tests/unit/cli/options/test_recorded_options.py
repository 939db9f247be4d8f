"""Every option of `run FILE` and `submit FILE` is recorded with the run, refused for files, or listed here
with the reason why a resumed run does not need it."""

from typing import Any

import msgspec
import pytest

from joblens.cli.commands.run_spec import OPTIONS_FOR_FILES, options_from
from joblens.cli.options.run import OFFER_OPTIONS, offer_rows, with_offer
from joblens.cli.options.table import (
    JOB_OPTIONS,
    QUEUE_OPTIONS,
    RUN_OPTIONS,
    SPEC_OPTIONS,
    OptionRow,
)
from joblens.model.runs.run import RunOptions

NOT_RECORDED = {
    "quiet": "how this call prints",
    "verbose": "how this call prints",
    "wait": "whether this call waits",
    "wait_timeout": "how long this call waits",
    "detach": "where this driver runs",
    "dry_run": "nothing runs",
    "rerun_changed": "the choice of jobs is recorded as Run.again",
}
ENGINE = {
    "queue": "celery",
    "broker": "celery",
    "retry_lost": "celery",
    "address": "ray",
    "packing": "slurm",
    "partition": "slurm",
    "account": "slurm",
    "qos": "slurm",
    "constraint": "slurm",
    "nodes": "slurm",
    "allocations": "slurm",
    "walltime": "slurm",
    "sbatch": "slurm",
}
SAMPLES: dict[str, Any] = {
    "params": ("a=1",),
    "cpus": 3.0,
    "memory": "2g",
    "gpus": "1",
    "output_dir": "elsewhere",
    "probes": "none",
    "notify": "send-mail",
    "queue": "large",
    "broker": "redis://broker:6379/1",
    "retry_lost": "never",
    "jobs": 2,
    "time": "1h",
    "only": ("a",),
    "skip": ("b",),
    "until": ("c",),
    "label": ("windows",),
    "on_interrupt": "kill",
    "engine": "slurm",
    "address": "head:6379",
    "packing": "allocations",
    "partition": "short",
    "account": "proj",
    "qos": "high",
    "constraint": "a100",
    "nodes": 2,
    "allocations": 3,
    "walltime": "2h",
    "sbatch": ("--mail-type=FAIL",),
}
ROWS = {row.name: row for row in (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *QUEUE_OPTIONS)}


def _nothing(row: OptionRow) -> Any:
    return False if row.kind == "flag" else () if row.kind == "many" else row.default


def _given(**values: Any) -> dict[str, Any]:
    return {"spec": "flow.yaml", **{row.name: _nothing(row) for row in ROWS.values()}, **values}


def _sample(name: str) -> Any:
    return True if ROWS[name].kind == "flag" else SAMPLES[name]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_option_is_recorded_refused_for_files_or_listed_as_not_needed(name: str) -> None:
    if name in NOT_RECORDED:
        return
    if name not in OPTIONS_FOR_FILES:
        return  # exit code 2: is for a single command
    assert name in SAMPLES or ROWS[name].kind == "flag", f"{name}: record it, or list it in NOT_RECORDED"
    engine = {"engine": ENGINE[name]} if name in ENGINE else {}
    without = options_from(_given(**engine))
    recorded = options_from(_given(**engine, **{name: _sample(name)}))
    assert recorded != without, f"{name} is not in RunOptions"
    again = msgspec.json.decode(msgspec.json.encode(recorded), type=RunOptions)
    assert again == recorded


def test_the_lists_name_options_that_exist() -> None:
    assert set(NOT_RECORDED) <= set(ROWS)
    assert set(SAMPLES) <= set(ROWS)
    assert set(ENGINE) <= set(ROWS)


def _resume(**values: Any) -> dict[str, Any]:
    return {**{row.name: _nothing(row) for row in offer_rows()}, **values}


@pytest.mark.parametrize("name", sorted(set(SAMPLES) & {row.name for row in offer_rows()}))
def test_an_option_of_resume_replaces_that_one_and_leaves_the_others(name: str) -> None:
    engine = ENGINE.get(name, "slurm")
    fitting = [one for one in SAMPLES if ENGINE.get(one, engine) == engine and one not in (name, "engine")]
    others = {"engine": engine, **{one: _sample(one) for one in fitting}}
    before = options_from(_given(**others))
    wanted = options_from(_given(**others, **({} if name == "engine" else {name: _sample(name)})))
    given = _resume(**{name: engine if name == "engine" else _sample(name)})
    found = with_offer(before, given)
    if name == "output_dir":
        assert found.output_dir.endswith("/elsewhere")
        found = msgspec.structs.replace(found, output_dir=wanted.output_dir)
    assert found == wanted


def test_another_engine_at_resume_takes_nothing_of_the_one_before() -> None:
    before = options_from(_given(engine="slurm", partition="short", allocations=2))
    found = with_offer(before, _resume(engine="ray"))
    assert (found.engine, found.slurm) == ("ray", RunOptions().slurm)


def test_resume_offers_the_options_of_offers() -> None:
    assert {row.name for row in OFFER_OPTIONS} <= {row.name for row in offer_rows()}
