"""Limits of the unit that joblens itself runs in: a job never gets more than its caller had."""

import pytest

from tests.vm.inside.jobs import python
from tests.vm.machine import Finished
from tests.vm.situations import Session

CALLERS = ("alice", "root")


@pytest.fixture(params=CALLERS)
def caller(request: pytest.FixtureRequest, alice: Session, root: Session) -> Session:
    return alice if request.param == "alice" else root


def in_unit(caller: Session, properties: list[str], *argv: str) -> Finished:
    """Run argv in a service with properties: alice's of her user manager, root's of the system manager."""
    manager = ["--user"] if caller.situation.login == "alice" else []
    options = [f"--property={text}" for text in properties]
    unit = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *manager, *options]
    # The kernel may kill joblens together with the unit; files in the spool are no leftover then.
    folder = f"/tmp/caller-limits-{caller.situation.login}"
    env = [f"JOBLENS_STORE={folder}/store.db", f"XDG_STATE_HOME={folder}/state"]
    done = caller.run(*unit, "env", *env, *argv)
    caller.run("rm", "-rf", folder)
    return done


FILL = python("block = fill(300); time.sleep(0.3); print('survived')")
MEMORY = ["MemoryMax=100M", "MemorySwapMax=0"]


def test_a_job_stays_under_the_memory_limit_of_its_caller(caller: Session) -> None:
    bare = in_unit(caller, MEMORY, *FILL)
    assert bare.code != 0, f"the limit does not work without joblens: {bare}"
    job = in_unit(caller, MEMORY, "joblens", "run", "-q", "--", *FILL)
    assert job.code != 0, str(job)
    assert "survived" not in job.stdout


def test_a_job_stays_under_the_memory_limit_of_its_caller_in_slots(caller: Session) -> None:
    code = f"import joblens; print([r.ok for r in joblens.map_commands([{FILL!r}])])"
    done = in_unit(caller, MEMORY, "/var/tmp/joblens-vm/python", "-c", code)
    assert "[True]" not in done.stdout, str(done)


def test_a_job_stays_under_the_cpu_quota_of_its_caller(caller: Session) -> None:
    code = "end = time.monotonic() + 5\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    job = in_unit(caller, ["CPUQuota=30%"], "joblens", "run", "-q", "--", *python(code))
    assert job.code == 0, str(job)
    assert float(job.stdout) <= 0.3 * 5 * 1.15, str(job)


def test_a_job_stays_under_the_process_limit_of_its_caller(caller: Session) -> None:
    code = """
children = 0
try:
    for _ in range(80):
        if not os.fork():
            time.sleep(3); os._exit(0)
        children += 1
except OSError: pass
print(children)
"""
    job = in_unit(caller, ["TasksMax=40"], "joblens", "run", "-q", "--", *python(code))
    assert job.code == 0, str(job)
    assert 0 < int(job.stdout) < 40, str(job)
