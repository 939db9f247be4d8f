"""Machines for tests: a QEMU virtual machine, or one that already runs and is reached by a command."""

import contextlib
import json
import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vm.image import Image, Report
from tests.vm.monitor import CONSOLE, diagnose

BOOT_S = 600.0  # emulated and beside other work
KERNEL_S = 20.0  # first line on the console; KVM that cannot run the kernel shows none
POWER_OFF_S = 60.0
SILENT_S = 150  # ssh gives up when the machine is silent for so long
ANSWER_S = 120.0  # a login on a machine that is busy
SSH_FAILED = 255
STEP_S = 600.0  # a guard against hangs, not a measure: the host may be busy
IS_QUICK = bool(os.environ.get("JOBLENS_VM_QUICK"))  # fewer forks and tries
MEMORY_MB = 3072
CPUS = 2


class MachineError(Exception):
    """The machine did not boot or does not answer."""


class StepTimeout(MachineError):
    """A command in the machine took longer than its time limit."""


class MachineHung(MachineError):
    """The machine answered no login any more. It was started anew; the message has its last words."""


@dataclass(frozen=True)
class Finished:
    """A command that ended in the machine."""

    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def json(self) -> Any:
        """The JSON document on the last line of stdout."""
        try:
            return json.loads(self.stdout.strip().rsplit("\n", 1)[-1])
        except ValueError:
            raise AssertionError(f"no JSON on the last line of stdout:\n{self}") from None

    def __str__(self) -> str:
        end = f"exit code {self.code} after {self.seconds:.1f} s"
        return f"$ {self.command}\n{end}\n{self.stdout}\n{self.stderr}"


class Machine:
    """Runs commands in login sessions of a machine."""

    def __init__(self, prefix: list[str]) -> None:
        self._prefix = prefix
        self.commands_run = 0  # a check for leftovers is needed only after some command ran
        self.boots = 0  # what ran before a new start is gone
        self.is_interrupted = False  # by Ctrl-C: commands in the machine may still run

    def argv(self, user: str, command: str) -> list[str]:
        """The command of this host that runs a shell command in a login session of its own."""
        return [*self._prefix, user, command]

    def start(self, user: str, command: str) -> subprocess.Popen[bytes]:
        """Start a command and leave it running; its login session lasts as long as the process returned."""
        self.commands_run += 1
        return subprocess.Popen(
            self.argv(user, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, user: str, command: str, *, stdin: bytes = b"", timeout: float = STEP_S) -> Finished:
        """Run a shell command in a fresh login session and wait for it."""
        begin = time.monotonic()
        process = self.start(user, command)
        try:
            stdout, stderr = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            shown = (stdout + stderr).decode(errors="replace")[-2000:]
            raise StepTimeout(f"{user}: no end after {timeout:g} s: {command[:300]}\n{shown}") from None
        except KeyboardInterrupt:
            self.is_interrupted = True
            process.kill()
            raise
        return Finished(
            command,
            process.returncode,
            stdout.decode(errors="replace"),
            stderr.decode(errors="replace"),
            time.monotonic() - begin,
        )

    def console(self) -> str:
        """The end of the console log, where there is one."""
        return ""

    def check(self) -> None:
        """Raise MachineHung when the machine does not answer."""


class QemuMachine(Machine):
    """A virtual machine of this process. It never writes to the image: several can run from one."""

    def __init__(self, image: Image, folder: Path, report: Report) -> None:
        super().__init__([])
        self._image = image
        self._folder = folder
        self._report = report
        self._port = 0
        self._accelerator = ""
        self._qemu: subprocess.Popen[bytes] | None = None

    def argv(self, user: str, command: str) -> list[str]:
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "20",
            "IdentitiesOnly": "yes",
            "LogLevel": "ERROR",
            "ServerAliveCountMax": "3",
            "ServerAliveInterval": str(SILENT_S // 3),
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        key = str(self._image.key)
        return ["ssh", "-F", "none", "-i", key, "-p", str(self._port), *flags, f"{user}@127.0.0.1", command]

    def run(self, user: str, command: str, *, stdin: bytes = b"", timeout: float = STEP_S) -> Finished:
        try:
            done = super().run(user, command, stdin=stdin, timeout=timeout)
        except StepTimeout:
            self.check()
            raise
        if done.code == SSH_FAILED and self.boots:
            self.check()
        return done

    def check(self) -> None:
        if not self.boots:
            return
        with contextlib.suppress(StepTimeout):
            if super().run("root", "true", timeout=ANSWER_S).code == 0:
                return
        begin = len(self._whole_console())
        where = diagnose(self._folder / "qmp", self._folder / "console") if self._is_alive() else "QEMU ended"
        whole = self._whole_console()
        log = Path(tempfile.gettempdir()) / f"joblens-vm-hang-{os.getpid()}-{self.boots}.log"
        log.write_text(f"{where}\n{whole}")
        self._end_qemu()
        self._boot(self._accelerator)
        raise MachineHung(
            f"no answer within {ANSWER_S:g} s; the machine was started anew\n{where}\n"
            f"{whole[begin:][:4000]}\nThe whole console is in {log}"
        )

    def boot(self) -> None:
        accelerators = os.environ.get("JOBLENS_VM_ACCEL", "kvm tcg").split()
        if not os.access("/dev/kvm", os.R_OK | os.W_OK) and "tcg" in accelerators:
            accelerators = ["tcg"]
        for accelerator in accelerators[:-1]:
            self._start_qemu(accelerator)
            if self._kernel_runs():
                self._boot(accelerator, is_started=True)
                return
            self._report("KVM does not run this kernel here; emulating")
            self._end_qemu()
        self._boot(accelerators[-1])

    def _boot(self, accelerator: str, *, is_started: bool = False) -> None:
        self._accelerator = accelerator
        if not is_started:
            self._start_qemu(accelerator)
        self._wait_for_ssh()
        self.boots += 1

    def _start_qemu(self, accelerator: str) -> None:
        for _ in range(5):
            self._port = _free_port()
            with (self._folder / "qemu.log").open("wb") as log:
                self._qemu = subprocess.Popen(
                    self._qemu_argv(accelerator), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            time.sleep(1.0)
            # Another process may have taken the port between the choice and the start.
            if self._qemu.poll() is None or "forwarding" not in self._qemu_log():
                return
        raise MachineError(f"QEMU found no free port:\n{self._qemu_log()}")

    def _qemu_argv(self, accelerator: str) -> list[str]:
        how = ["-accel", "tcg,thread=multi", "-cpu", "Nehalem"]
        if accelerator == "kvm":
            how = ["-accel", "kvm", "-cpu", "host"]
        kernel_options = "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off sysrq_always_enabled"
        console = f"path={self._folder}/console,server=on,wait=off,logfile={self._console_path}"
        return [
            *("setpriv", "--pdeathsig", "KILL"),  # a killed test run leaves no machine behind
            *("qemu-system-x86_64", *how, "-m", str(MEMORY_MB), "-smp", str(CPUS)),
            *("-no-reboot", "-display", "none", "-serial", f"chardev:{CONSOLE}"),
            *("-chardev", f"socket,id={CONSOLE},{console}"),
            *("-qmp", f"unix:{self._folder}/qmp,server=on,wait=off"),
            *(
                "-kernel",
                str(self._image.kernel),
                "-initrd",
                str(self._image.initrd),
                "-append",
                kernel_options,
            ),
            *("-drive", f"file={self._image.disk},format=raw,if=virtio,cache=unsafe,snapshot=on"),
            *("-device", "virtio-rng-pci", "-device", "virtio-net-pci,netdev=net"),
            *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self._port}-:22"),
        ]

    @property
    def _console_path(self) -> Path:
        return self._folder / "console.log"

    def console(self) -> str:
        try:
            return self._console_path.read_text(errors="replace")[-4000:]
        except FileNotFoundError:
            return ""

    def _qemu_log(self) -> str:
        return (self._folder / "qemu.log").read_text(errors="replace")

    def _kernel_runs(self) -> bool:
        end = time.monotonic() + KERNEL_S
        while time.monotonic() < end and self._is_alive():
            if "Linux version" in self._whole_console():
                return True
            time.sleep(0.2)
        return False

    def _whole_console(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._console_path.read_text(errors="replace")
        return ""

    def _is_alive(self) -> bool:
        return self._qemu is not None and self._qemu.poll() is None

    def _wait_for_ssh(self) -> None:
        begin = time.monotonic()
        while time.monotonic() - begin < BOOT_S:
            if not self._is_alive():
                raise MachineError(f"QEMU ended while booting:\n{self._qemu_log()}\n{self.console()}")
            self._report(f"booting ({time.monotonic() - begin:.0f} s)")
            with contextlib.suppress(StepTimeout):
                if self.run("root", "systemctl is-system-running --wait || true", timeout=100).code == 0:
                    return
            time.sleep(1.0)
        self._end_qemu()
        raise MachineError(f"no answer by ssh after {BOOT_S:g} s; the console ends with:\n{self.console()}")

    def shut_down(self) -> None:
        with contextlib.suppress(StepTimeout):
            self.run("root", "systemctl poweroff --no-block", timeout=20)
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert self._qemu is not None
            self._qemu.wait(POWER_OFF_S)
        self._end_qemu()

    def _end_qemu(self) -> None:
        if self._qemu is None:
            return
        if self._qemu.poll() is None:
            self._qemu.kill()
        self._qemu.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def running_machine(prefix: str) -> Machine:
    """A machine that is already running: `PREFIX USER COMMAND` has to run a command in a login session."""
    machine = Machine(shlex.split(prefix))
    answer = machine.run("root", "true", timeout=60)
    if answer.code != 0:
        raise MachineError(f"JOBLENS_VM_SSH={prefix} does not run commands as root:\n{answer}")
    return machine


@contextlib.contextmanager
def booted(image: Image, report: Report) -> Iterator[Machine]:
    """A machine for the length of the block, powered off at its end."""
    with tempfile.TemporaryDirectory(prefix="joblens-vm-") as folder:
        machine = QemuMachine(image, Path(folder), report)
        try:
            machine.boot()
            yield machine
        finally:
            machine.shut_down()
