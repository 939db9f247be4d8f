"""The systemd scope that holds all jobs of a joblens process, for a user who may not divide the own group."""

from tests.vm.situations import Session


def test_slots_and_sessions_of_a_process_share_one_scope(alice: Session) -> None:
    found = alice.program("scopes", "one_owner")
    assert found["code"] == 0, found
    assert len(set(found["units"].values())) == 1, found
    assert found["units"]["free"], found
    started = [line for line in found["journal"] if line.startswith("Started")]
    assert len(started) == 1, found["journal"]


def test_a_running_manager_is_found_without_the_variables_of_a_login(alice: Session) -> None:
    for job in alice.program("scopes", "runtime_dir").values():
        assert job["code"] == 0, job
        assert job["mode"] == "cgroup-v2", job
        assert job["stderr"] == "", job


def test_a_hung_manager_is_waited_for_once_by_a_process(alice: Session) -> None:
    found = alice.program("scopes", "hung")
    assert all(job["ok"] for job in found["jobs"]), found
    assert all("has not answered within 2 s" in job["reason"] for job in found["jobs"]), found
    assert found["jobs"][0]["seconds"] >= 2, found
    # By their words: on a slow machine any job takes seconds.
    assert ["not asked again" in job["reason"] for job in found["jobs"]] == [False, True, True], found


def test_a_killed_owner_leaves_its_scope_to_its_job(alice: Session) -> None:
    found = alice.program("scopes", "killed")
    assert found["unit"], found
    assert found["while"] is True, found
    assert found["after"] is False, found
    assert found["next"] not in ("", found["unit"]), found
