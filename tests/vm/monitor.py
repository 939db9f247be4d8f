"""QEMU's monitor: what the CPUs and tasks of a machine do that answers no login any more."""

import json
import socket
import time
from pathlib import Path
from typing import Any

CONSOLE = "console"  # QEMU's name for the serial line
REPLY_S = 10.0
PRINT_S = 15.0  # the kernel writes thousands of lines to an emulated serial line
SYSRQ_KEYS = {"l": "stacks of all CPUs", "w": "blocked tasks", "m": "memory", "t": "all tasks"}


class Monitor:
    """A connection to the QMP socket of a running QEMU."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(REPLY_S)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("r")
        self._lines.readline()  # greeting
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: str) -> Any:
        """Run a QMP command and return its answer. Events that come first are left out."""
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while line := self._lines.readline():
            message = json.loads(line)
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise OSError(f"{command}: {message['error']['desc']}")
        raise OSError(f"{command}: QEMU closed the connection")

    def registers(self) -> str:
        """Registers of all CPUs."""
        text: str = self.execute("human-monitor-command", **{"command-line": "info registers -a"})
        return text

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def diagnose(monitor_path: Path, console_path: Path) -> str:
    """Where the CPUs are, three times; then ask the kernel for stacks. Its answer appears on the console."""
    lines = []
    try:
        monitor = Monitor(monitor_path)
        try:
            for _ in range(3):
                lines += [
                    line for line in monitor.registers().splitlines() if line.startswith(("CPU#", "RIP"))
                ]
                time.sleep(1.0)
            for key in SYSRQ_KEYS:
                press_sysrq(monitor, console_path, key)
        finally:
            monitor.close()
    except OSError as error:
        lines.append(f"QEMU's monitor: {error}")
    return "\n".join(lines)


def press_sysrq(monitor: Monitor, console_path: Path, key: str) -> None:
    """A break on the serial line and a letter, as Linux takes its SysRq keys from there."""
    with socket.socket(socket.AF_UNIX) as console:
        console.settimeout(PRINT_S)
        console.connect(str(console_path))
        monitor.execute("chardev-send-break", id=CONSOLE)
        console.sendall(key.encode())
        end = time.monotonic() + PRINT_S
        try:
            while time.monotonic() < end and console.recv(1 << 16):
                pass  # the log file gets it too; QEMU waits for a reader that is connected
        except TimeoutError:
            pass
