"""Where the groups of jobs are made, and that no group of anybody else is changed."""

from typing import Any

import pytest

from tests.vm.situations import Session, program_argv

CALLERS = ("alice", "root")
LIMIT = "MemoryMax=300M"


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, alice: Session, root: Session) -> Session:
    return alice if request.param == "alice" else root


def in_unit(caller: Session, *properties: str) -> dict[str, Any]:
    """Run the program as the only process of a service."""
    manager = ["--user"] if caller.situation.login == "alice" else []
    options = [f"--property={text}" for text in properties]
    unit = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *manager, *options]
    done = caller.run(*unit, *program_argv("placement"))
    assert done.code == 0, str(done)
    found: dict[str, Any] = done.json
    assert [slot["ok"] for slot in found["slots"]] == [True] * 3, found
    assert found["job"]["ok"], found
    return found


def test_the_group_of_the_caller_is_as_before(situation: Session) -> None:
    found = situation.program("placement")
    assert found["after"] == found["before"], found
    assert found["after"]["type"] in ("domain", ""), found


def test_slots_are_counted_like_other_jobs(situation: Session) -> None:
    found = situation.program("placement")
    assert {slot["mode"] for slot in found["slots"]} == {found["job"]["mode"]}, found


@pytest.mark.parametrize("limits", [(), (LIMIT,)], ids=["no-limit", "limit"])
def test_a_delegated_unit_is_divided_and_put_back(caller: Session, limits: tuple[str, ...]) -> None:
    found = in_unit(caller, "Delegate=yes", *limits)
    group = found["before"]["group"]
    for job in (*found["slots"], found["job"]):
        assert job["group"].startswith(f"{group}/joblens-"), found
    assert found["job"]["enforced_by"] == {"memory": "cgroup memory.max"}, found
    assert found["after"] == found["before"], found
    assert found["after"]["below"] == [], found


def test_jobs_stay_in_a_limited_unit_that_is_not_delegated(caller: Session) -> None:
    found = in_unit(caller, LIMIT)
    assert {job["mode"] for job in (*found["slots"], found["job"])} == {"process-tree"}, found
    assert found["job"]["enforced_by"] == {"memory": "watched by joblens"}, found
    assert found["after"] == found["before"], found


def test_the_record_says_which_limit_keeps_the_job_in_its_unit(caller: Session) -> None:
    manager = ["--user"] if caller.situation.login == "alice" else []
    unit = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *manager, f"--property={LIMIT}"]
    folder = "export JOBLENS_STORE=$(mktemp -d)/store.db; "
    script = "joblens run -q --name one -- true && joblens show one --json; rm -rf ${JOBLENS_STORE%/*}"
    done = caller.run(*unit, "sh", "-c", folder + script)
    assert "has a limit (memory.max 314572800)" in done.stdout, str(done)


def test_a_unit_without_limits_keeps_its_jobs_in_a_scope_of_the_same_slice(caller: Session) -> None:
    found = in_unit(caller)
    slice_group = found["before"]["group"].rpartition("/")[0]
    for job in (*found["slots"], found["job"]):
        assert job["group"].startswith(f"{slice_group}/joblens-"), found
        assert ".scope/joblens-" in job["group"], found


def test_killing_the_outer_job_ends_the_inner_one(caller: Session) -> None:
    script = (
        "export JOBLENS_STORE=$(mktemp -d)/store.db; "
        "joblens run -q --timeout 20s -- joblens run -q -- sh -c 'echo begun; exec sleep 4711'; echo $?; "
        "pgrep --full --exact --count 'sleep 4711'; rm -rf ${JOBLENS_STORE%/*}"
    )
    done = caller.shell(script, timeout=120)
    assert done.stdout.split() == ["begun", "124", "0"], str(done)
