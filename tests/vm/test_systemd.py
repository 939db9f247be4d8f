"""systemd while jobs run: a manager that hangs, one that reloads, and the cost of a scope."""

from statistics import median

from tests.vm.situations import Session
from tests.vm.summary import Summary

HUNG_MANAGER_S = 2.0
COST_GOAL = 1.1


def test_a_hung_user_manager_delays_a_job_by_at_most_two_seconds(alice: Session, summary: Summary) -> None:
    found = alice.program("hung_manager")
    delay = found["hung"]["seconds"] - found["usual"]["seconds"]
    summary.note(alice.name, "hung manager", f"{delay:+.1f} s, {found['hung']['mode']}")
    assert found["hung"]["code"] == 0, found
    # The same run takes longer or shorter by itself on an emulated machine.
    assert delay <= HUNG_MANAGER_S + 0.5 * found["usual"]["seconds"], found


def test_limits_hold_while_a_user_manager_reloads(alice: Session) -> None:
    check_reload(alice, "--user")


def test_limits_hold_while_the_system_manager_reloads(root: Session) -> None:
    check_reload(root)


def check_reload(session: Session, *manager: str) -> None:
    found = session.program("reload", *manager)
    job = found["job"]
    assert job["code"] == 0, job
    assert job["mode"] == "cgroup-v2", job
    assert found["before"] == found["after"], found
    assert found["before"]["memory.max"] == str(200 << 20), found
    assert found["before"]["cpu.max"].split()[0] != "max", found
    assert job["cpu_s"] <= 0.33 * job["duration_s"], job


def test_the_cost_of_a_run_is_compared_with_that_of_a_scope(alice: Session, summary: Summary) -> None:
    found = alice.program("scope_cost", "7")
    run, scope, tree = (median(found[name]) for name in ("run", "scope", "tree"))
    ratio = run / (scope + tree)
    summary.number(
        "joblens run -- true against systemd-run --user --scope true plus process_tree "
        f"({1000 * run:.0f} ms, {1000 * scope:.0f} ms + {1000 * tree:.0f} ms)",
        f"{ratio:.2f}",
        goal=f"<= {COST_GOAL}",
        is_met=ratio <= COST_GOAL,
    )
    assert found["mode"] == "cgroup-v2", found
