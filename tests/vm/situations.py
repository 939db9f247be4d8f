"""Launch situations: the ways in which people start joblens on a machine with systemd."""

import shlex
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.vm.machine import STEP_S, Finished, Machine

GUEST_FOLDER = "/var/tmp/joblens-vm"  # programs of tests/vm/inside, readable for everybody
INSIDE = Path(__file__).resolve().parent / "inside"
ALICE = "alice"
MANAGER_OF_ALICE = "user@$(id -u alice).service"


@dataclass(frozen=True)
class Situation:
    """A way to start a program. `wrapper` is put before its command line."""

    name: str
    login: str
    wrapper: tuple[str, ...] = ()
    has_manager: bool | None = None  # True: a user manager runs; False: none; None: the login decides
    is_cgroup_expected: bool = True  # else the process tree is the honest answer

    @property
    def id(self) -> str:
        return self.name.replace(" ", "-")


_AS_ALICE = ("sudo", "-u", ALICE, "-H", "--", "env", "-C", f"/home/{ALICE}")
_SERVICE = ("systemd-run", "--quiet", "--pipe", "--wait", "--collect")
# The view of a container: its own group is the root of the hierarchy, and there is no systemd to ask.
_ENTER_CONTAINER = (
    "umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs none /run; "
    f'export PATH={GUEST_FOLDER}/container-bin; exec "$@"'
)
_CONTAINER = (
    "systemd-run",
    "--quiet",
    "--scope",
    "--property=Delegate=yes",
    "unshare",
    "--cgroup",
    "--mount",
    "sh",
    "-ec",
    _ENTER_CONTAINER,
    "sh",
)

ALICE_SSH = Situation("alice ssh", ALICE)
ROOT_SSH = Situation("root ssh", "root")
ALICE_SCOPE = Situation("alice user scope", ALICE, ("systemd-run", "--quiet", "--user", "--scope", "--"))
ALICE_SUDO = Situation("alice sudo", "root", _AS_ALICE, has_manager=False, is_cgroup_expected=False)
ALICE_SUDO_MANAGER = Situation("alice sudo, manager", "root", _AS_ALICE, has_manager=True)
ALICE_SERVICE = Situation(
    "alice service",
    "root",
    (*_SERVICE, f"--property=User={ALICE}"),
    has_manager=False,
    is_cgroup_expected=False,
)
ROOT_SERVICE = Situation("root service", "root", _SERVICE)
# Its own group holds other processes and hands no controllers down: nothing joblens may change.
ROOT_CONTAINER = Situation("root container", "root", _CONTAINER, is_cgroup_expected=False)

SITUATIONS = (
    ALICE_SSH,
    ALICE_SCOPE,
    ALICE_SUDO,
    ALICE_SUDO_MANAGER,
    ALICE_SERVICE,
    ROOT_SSH,
    ROOT_SERVICE,
    ROOT_CONTAINER,
)


class Session:
    """Runs programs in one launch situation, each in a login session of its own."""

    def __init__(self, machine: Machine, situation: Situation) -> None:
        self.machine = machine
        self.situation = situation
        self.name = situation.name
        self._batches: dict[str, Any] = {}

    def run(self, *argv: str, timeout: float = STEP_S) -> Finished:
        """Run a command line."""
        command = shlex.join((*self.situation.wrapper, *argv))
        if self.situation.has_manager is not None:
            command = f"{manager_command(is_running=self.situation.has_manager)} && {command}"
        return self.machine.run(self.situation.login, command, timeout=timeout)

    def shell(self, script: str, *, timeout: float = STEP_S) -> Finished:
        """Run a shell script."""
        return self.run("sh", "-c", script, timeout=timeout)

    def program(self, name: str, *arguments: str, timeout: float = STEP_S) -> Any:
        """Run tests/vm/inside/NAME.py with the Python that has joblens; returns the JSON on its last line."""
        done = self.run(*program_argv(name, *arguments), timeout=timeout)
        assert done.code == 0, str(done)
        return done.json

    def batch(self, name: str, *arguments: str, timeout: float = STEP_S) -> Any:
        """Like `program`, but run once for all tests that ask for it."""
        key = shlex.join((name, *arguments))
        if key not in self._batches:
            try:
                self._batches[key] = self.program(name, *arguments, timeout=timeout)
            except Exception as error:
                self._batches[key] = error
                raise
        found = self._batches[key]
        assert not isinstance(found, Exception), f"{key} failed in an earlier test: {str(found)[:300]}"
        return found


def program_argv(name: str, *arguments: str) -> tuple[str, ...]:
    """The command line in the machine of a program in tests/vm/inside."""
    python = f"{GUEST_FOLDER}/python"
    return ("env", f"PYTHONPATH={GUEST_FOLDER}", python, "-m", f"tests.vm.inside.{name}", *arguments)


def install_programs(machine: Machine) -> None:
    """Copy tests/vm/inside into the machine, and make the folder that is PATH in a container."""
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(INSIDE.iterdir()):
            if path.is_file():
                tar.add(path, f"tests/vm/inside/{path.name}")
    programs = "cat env false head ls mkdir python3 sh sleep tail true"
    script = f"""set -e
        rm -rf {GUEST_FOLDER}; mkdir -p {GUEST_FOLDER}/container-bin; cd {GUEST_FOLDER}
        tar -xf - --no-same-owner
        own=$(readlink -f "$(command -v joblens)")
        printf '#!/bin/sh\\nexec %s "$@"\\n' "$(dirname "$own")/python" > python; chmod 755 python
        for name in {programs}; do ln -s /usr/bin/$name container-bin/$name; done
        ln -s "$own" container-bin/joblens
        chmod -R a+rX {GUEST_FOLDER}
        "$PWD/python" -m compileall -q tests"""
    done = machine.run("root", script, stdin=archive.getvalue())
    assert done.code == 0, f"joblens has to be installed and on the PATH of root:\n{done}"


def manager_command(*, is_running: bool) -> str:
    """A shell command for root that starts (with lingering) or stops the user manager of alice."""
    if is_running:
        return f"loginctl enable-linger {ALICE} && systemctl start {MANAGER_OF_ALICE}"
    return f"loginctl disable-linger {ALICE} && systemctl stop {MANAGER_OF_ALICE}"


SessionOf = Callable[[Situation], Session]
