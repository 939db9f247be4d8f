"""Signals for a program that is the first process of a container."""

import os
import signal
import termios

from joblens.probes.proc.kernel_files import read_text

# What the client is told when the job has to end now, whatever the container thinks of it.
GIVE_UP = signal.SIGRTMAX

HANDED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def is_deadly(number: int, pid: int) -> bool:
    """Whether the process neither handles nor ignores nor blocks it. The first process of a container would
    not even notice; anywhere else it would die."""
    status = read_text(f"/proc/{pid}/status")
    if status is None:
        return False
    bit = 1 << (number - 1)
    masks = [
        int(line.split()[1], 16)
        for line in status.splitlines()
        if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:"))
    ]
    return len(masks) == 3 and not any(mask & bit for mask in masks)


def interrupts_by_key(pid: int | None) -> bool:
    """Whether Ctrl-C on the container's terminal is meant for its first process, which is then out of reach
    of it: the terminal makes a signal of the key, and that process is in front."""
    if pid is None or not is_deadly(signal.SIGINT, pid):
        return False
    try:
        terminal = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        makes_signals = bool(termios.tcgetattr(terminal)[3] & termios.ISIG)
    except termios.error:
        return False
    finally:
        os.close(terminal)
    words = (read_text(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return makes_signals and len(words) > 5 and words[2] == words[5]  # its group is the terminal's
