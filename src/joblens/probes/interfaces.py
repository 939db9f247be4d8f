"""Network interfaces by /proc/net/dev: those of the machine, or of a namespace that a job has to itself."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.model.sample import InterfaceIo
from joblens.probes.kernel_files import pread_whole

SAME_NETWORK = "the job uses the machine's network, whose interfaces are everybody's"
_FEW = 4  # processes to look at: those of a container all have its network
_OFTEN, _SELDOM = 10, 15  # the first readings look for a namespace, after that one in so many
# A line has eight numbers of what came in, then eight of what went out.
_RX_BYTES, _RX_PACKETS, _RX_ERRORS, _RX_DROPPED = 0, 1, 2, 3
_TX_BYTES, _TX_PACKETS, _TX_ERRORS, _TX_DROPPED = 8, 9, 10, 11


class InterfacesProbe:
    """Of the first process that has a network of its own. `has_begun`: the namespace is older than the
    measurement, so what its interfaces counted before is taken off."""

    name = "interfaces"

    def __init__(
        self, pids: Callable[[], Sequence[int]], *, has_begun: bool = False, proc: str = "/proc"
    ) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {"interfaces": SAME_NETWORK}
        self._pids = pids
        self._proc = proc
        self._has_begun = has_begun
        self._own = network_namespace("self", proc)
        self._file = -1
        self._base: Mapping[str, InterfaceIo] = {}
        self._readings = 0

    def read(self) -> dict[str, Any]:
        self._readings += 1
        if self._file < 0 and (self._readings <= _OFTEN or self._readings % _SELDOM == 0):
            self._look_for_namespace()
        if self._file < 0:
            return {}
        return {"interfaces": interfaces_since(self._read(), self._base)}

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _look_for_namespace(self) -> None:
        for pid in list(self._pids())[:_FEW]:
            found = network_namespace(pid, self._proc)
            if found is None or found == self._own:
                continue
            try:
                # It stays readable when the process has ended.
                self._file = os.open(f"{self._proc}/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            if self._has_begun:
                self._base = self._read()
            self.sources["interfaces"] = "/proc/PID/net/dev"
            self.unknown.clear()
            return

    def _read(self) -> dict[str, InterfaceIo]:
        return parse_interfaces(pread_whole(self._file))


def network_namespace(pid: int | str, proc: str = "/proc") -> int | None:
    """Its number; None: the process is gone, or may not be looked at."""
    try:
        return os.stat(f"{proc}/{pid}/ns/net").st_ino
    except OSError:
        return None


def parse_interfaces(data: bytes) -> dict[str, InterfaceIo]:
    """Loopback included: within a namespace it is the job's own."""
    found = {}
    for line in data.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        numbers = [int(word) for word in rest.split()]
        found[name.strip().decode("ascii", "replace")] = InterfaceIo(
            rx_bytes=numbers[_RX_BYTES],
            tx_bytes=numbers[_TX_BYTES],
            rx_packets=numbers[_RX_PACKETS],
            tx_packets=numbers[_TX_PACKETS],
            rx_errors=numbers[_RX_ERRORS],
            tx_errors=numbers[_TX_ERRORS],
            rx_dropped=numbers[_RX_DROPPED],
            tx_dropped=numbers[_TX_DROPPED],
        )
    return found


def interfaces_since(
    now: Mapping[str, InterfaceIo], base: Mapping[str, InterfaceIo]
) -> dict[str, InterfaceIo]:
    if not base:
        return dict(now)
    nothing = InterfaceIo()
    return {
        name: InterfaceIo(
            *(
                max(0, getattr(io, field) - getattr(base.get(name, nothing), field))
                for field in InterfaceIo.__struct_fields__
            )
        )
        for name, io in now.items()
    }


def parse_host_network(data: bytes) -> dict[str, int]:
    """What all interfaces of the machine but loopback carried. Traffic through a bridge counts at each of
    its interfaces."""
    received = sent = 0
    for line in data.splitlines()[2:]:
        name, _, rest = line.rpartition(b":")
        if name.strip() != b"lo":
            words = rest.split(None, _TX_BYTES + 1)
            received += int(words[_RX_BYTES])
            sent += int(words[_TX_BYTES])
    return {"host_network_rx_bytes": received, "host_network_tx_bytes": sent}
