"""`joblens doctor` agrees with what `run` and `map` do, and the commands that it shows help when typed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.situations import (
    ALICE,
    ALICE_SUDO,
    MANAGER_OF_ALICE,
    Session,
    SessionOf,
    manager_command,
    program_argv,
)
from tests.vm.summary import Summary

MIB = 1 << 20
DROP_IN = "/etc/systemd/system/user@.service.d"
NIGHTLY = "/run/systemd/system/nightly.service"


def check(found: dict[str, Any]) -> None:
    """Doctor's answer is what the jobs after it got."""
    assert found["jobs"]["accounting"] == found["run"]["mode"], found
    assert [found["slots"]["accounting"]] == found["map"], found
    held = found["run"]["enforced_by"]
    for limit, mechanism in found["limits"].items():
        if mechanism.startswith("cgroup"):
            assert held[limit] == mechanism, found
        else:
            assert not held.get(limit, "").startswith("cgroup"), found
    assert bool(found["fix"]) == bool(found["reason"]) == (found["run"]["mode"] == "process-tree"), found


def test_doctor_says_how_run_and_map_measure(situation: Session, summary: Summary) -> None:
    found = situation.program("doctor")
    summary.note(situation.name, "doctor", found["jobs"]["way"])
    check(found)


@pytest.mark.parametrize(
    ("properties", "way"),
    [(["MemoryMax=300M"], "process-tree"), (["MemoryMax=300M", "Delegate=yes"], "own-group")],
)
def test_doctor_knows_units_with_limits(alice: Session, properties: list[str], way: str) -> None:
    options = [f"--property={text}" for text in properties]
    wrapper = ["systemd-run", "--user", "--scope", "--quiet", *options, "--"]
    done = alice.run(*wrapper, "joblens", "doctor", "--json")
    assert done.code == 0, str(done)
    assert done.json["jobs"]["way"] == way


def test_doctor_inside_a_job_finds_the_job(alice: Session) -> None:
    done = alice.run("joblens", "run", "-q", "--memory", "300m", "--", "joblens", "doctor", "--json")
    assert done.code == 0, str(done)
    assert done.json["jobs"]["way"] == "inside-job"


def test_doctor_does_not_wait_for_a_hung_user_manager(alice: Session, summary: Summary) -> None:
    usual = alice.program("doctor", "only")["seconds"]
    pid = f"$(systemctl show {MANAGER_OF_ALICE} --property=MainPID --value)"
    call = " ".join(program_argv("doctor", "only"))
    done = alice.shell(f"sudo kill -STOP {pid}; {call}; sudo kill -CONT {pid}")
    found = done.json
    summary.note(alice.name, "doctor, hung manager", f"{found['seconds']:.1f} s, usually {usual:.1f} s")
    assert found["jobs"]["way"] == "process-tree", found
    assert "not answered within 2 s" in found["reason"], found
    assert "sudo systemctl restart user@" in found["fix"], found
    # Goal: 5 s. The same command takes longer or shorter by itself on an emulated machine.
    assert found["seconds"] <= max(5.0, 2.0 + 1.5 * usual), found


# ---- the commands, as typed ------------------------------------------------------------------------------


def typed(fix: str) -> str:
    """A script of the commands in a fix, as alice would type them."""
    _, *commands = fix.split("\n")
    assert commands, fix
    return "set -e\n" + "\n".join(commands)


@pytest.fixture
def without_drop_in(root: Session) -> Iterator[None]:
    yield
    root.shell(f"rm -rf {DROP_IN}; systemctl daemon-reload; systemctl stop {MANAGER_OF_ALICE}")


def test_the_io_controller_comes_with_the_drop_in(
    alice: Session, without_drop_in: None, summary: Summary
) -> None:
    before = alice.program("device_io")
    assert before["direct"]["io_read_ops"] is None, before
    assert "the io controller is not enabled" in before["direct"]["unknown"]["io_read_ops"], before
    assert before["direct"]["io_write_bytes"] == 20 * MIB, before
    assert "io_write_bytes" not in before["direct"]["lower_bounds"], before
    assert "io_call_write_bytes" in before["unreaped"]["lower_bounds"], before

    fix = alice.program("doctor", "only")["io_fix"]
    done = alice.shell(typed(fix))
    assert done.code == 0, str(done)

    after = alice.program("device_io")
    summary.note(alice.name, "io controller", f"{after['direct']['io_write_ops']} writes for 20 MiB")
    assert after["direct"]["io_write_ops"] > 0, after
    assert 20 * MIB <= after["direct"]["io_write_bytes"] <= 21 * MIB, after
    assert "io_write_bytes" not in after["unreaped"]["lower_bounds"], after


def test_lingering_brings_scopes_to_sudo(session_of: SessionOf, root: Session) -> None:
    sudo = session_of(ALICE_SUDO)
    before = sudo.program("doctor", "only")
    assert before["jobs"]["way"] == "process-tree", before
    # Not through `sudo`, which would stop the user manager again.
    try:
        assert root.shell(typed(before["fix"])).code == 0
        root.shell(f"systemctl start {MANAGER_OF_ALICE}")
        done = root.run(*sudo.situation.wrapper, *program_argv("doctor"))
        assert done.json["jobs"]["way"] == "systemd-scope", str(done)
        check(done.json)
    finally:
        root.shell(manager_command(is_running=False))


@pytest.fixture
def nightly(root: Session) -> Iterator[Session]:
    """A service of alice that writes what doctor says to /run/nightly.json."""
    lines = ["[Service]", "Type=oneshot", f"User={ALICE}", "StandardOutput=truncate:/run/nightly.json"]
    text = "\\n".join([*lines, "ExecStart=/usr/bin/env joblens doctor --json", ""])
    root.shell(f"{manager_command(is_running=False)}; printf '{text}' > {NIGHTLY}; systemctl daemon-reload")
    yield root
    root.shell(f"rm -rf {NIGHTLY} {NIGHTLY}.d /run/nightly.json; systemctl daemon-reload")


def test_delegation_brings_groups_to_a_service(nightly: Session) -> None:
    call = "systemctl start nightly.service && cat /run/nightly.json"
    before = nightly.shell(call).json
    (row,) = [row for row in before["capabilities"] if row["name"] == "cgroup-v2"]
    assert before["jobs"]["way"] == "process-tree", row
    text, *commands = row["fix"].split("\n")
    assert "Delegate=yes" in text
    assert "[Service]" in text
    assert commands == ["sudo systemctl edit nightly.service", "sudo systemctl restart nightly.service"]
    # `systemctl edit` without a person: the file that it would write.
    drop_in = f"mkdir -p {NIGHTLY}.d && printf '[Service]\\nDelegate=yes\\n' > {NIGHTLY}.d/override.conf"
    after = nightly.shell(f"{drop_in} && systemctl daemon-reload && {call}").json
    assert after["jobs"] == {"accounting": "cgroup-v2", "way": "own-group"}


def test_a_container_gets_groups_by_moving_its_processes(root: Session) -> None:
    enter = (
        "umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs none /run; "
        "touch /run/.containerenv; joblens doctor --json > /run/before.json; "
        "python3 /run/typed.py; sh /run/typed.sh; cat /run/before.json; joblens doctor --json"
    )
    script = (
        "import json; rows = json.load(open('/run/before.json'))['capabilities']; "
        "fix = [row for row in rows if row['name'] == 'cgroup-v2'][0]['fix']; "
        "open('/run/typed.sh', 'w').write('\\n'.join(fix.split('\\n')[1:]))"
    )
    enter = enter.replace("python3 /run/typed.py", f'python3 -c "{script}"')
    done = root.run(
        "systemd-run", "--quiet", "--scope", "-p", "Delegate=yes", "unshare", "-C", "-m", "sh", "-c", enter
    )
    assert '"way":"process-tree"' in done.stdout.split("\n")[0], str(done)
    assert done.json["jobs"] == {"accounting": "cgroup-v2", "way": "own-group"}, str(done)
