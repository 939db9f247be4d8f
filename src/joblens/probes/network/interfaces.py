"""Network interfaces by /proc/net/dev: those of the machine, or of a namespace that a job has to itself."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.files.processes import process_start_ticks
from joblens.model.jobs.sample import InterfaceIo
from joblens.probes.proc.kernel_files import USEC_PER_TICK, pread_whole

NOT_ALLOWED = "a process of the job does not let this user look at its network"
SAME_NETWORK = "the job uses the machine's network, whose interfaces are everybody's"
_FEW = 4  # processes to look at: those of a container all have its network
_OFTEN, _SELDOM = 10, 15  # the first readings look for a namespace, after that one in so many
# A line has eight numbers of what came in, then eight of what went out.
_RX_BYTES, _RX_PACKETS, _RX_ERRORS, _RX_DROPPED = 0, 1, 2, 3
_TX_BYTES, _TX_PACKETS, _TX_ERRORS, _TX_DROPPED = 8, 9, 10, 11


class InterfacesProbe:
    """Of the first process that has a network of its own. What a namespace's interfaces counted before the
    job came to it is taken off; `has_begun`: the job itself was there before the measurement. `age_s`: how
    long ago it began."""

    name = "interfaces"

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        *,
        has_begun: bool = False,
        age_s: float = 0.0,
        proc: str = "/proc",
        named: str = "/run/netns",
    ) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {"interfaces": SAME_NETWORK}
        self._pids = pids
        self._proc = proc
        self._has_begun = has_begun
        self._began_ticks = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * 1e6) // USEC_PER_TICK
        self._named = frozenset[int]() if age_s else _named_namespaces(named)
        self._own = network_namespace("self", proc)
        self._file = -1
        self._base: Mapping[str, InterfaceIo] = {}
        self._seen: dict[str, InterfaceIo] = {}  # as last seen: an engine takes a container's away at its end
        self._readings = 0

    def read(self) -> dict[str, Any]:
        self._readings += 1
        if self._file < 0 and (self._readings <= _OFTEN or self._readings % _SELDOM == 0):
            self._look_for_namespace()
        if self._file < 0:
            return {}
        self._seen.update(interfaces_since(self._read(), self._base))
        return {"interfaces": dict(self._seen)}

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _look_for_namespace(self) -> None:
        pids = list(self._pids())
        for pid in pids[:_FEW]:
            try:
                found = os.stat(f"{self._proc}/{pid}/ns/net").st_ino
                if found == self._own:
                    continue
                # It stays readable when the process has ended.
                self._file = os.open(f"{self._proc}/{pid}/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            except PermissionError:
                self.unknown["interfaces"] = NOT_ALLOWED
                continue
            except OSError:
                continue  # it has just ended
            if self._has_begun or self._is_older(found, pids):
                self._base = self._read()
            self.sources["interfaces"] = "/proc/PID/net/dev"
            self.unknown.clear()
            return

    def _is_older(self, namespace: int, own: Sequence[int]) -> bool:
        """The kernel does not tell when a namespace was made. It was there before the job if it had a name
        then, or if somebody else who is older than the job is in it."""
        if namespace in self._named:
            return True
        others = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}.difference(own)
        return any(
            network_namespace(pid, self._proc) == namespace
            and (process_start_ticks(pid, self._proc) or self._began_ticks) < self._began_ticks
            for pid in others
        )

    def _read(self) -> dict[str, InterfaceIo]:
        return parse_interfaces(pread_whole(self._file))


def _named_namespaces(folder: str) -> frozenset[int]:
    """Those that `ip netns` keeps, whether or not somebody is in them."""
    try:
        return frozenset(os.stat(f"{folder}/{name}").st_ino for name in os.listdir(folder))
    except OSError:  # there are none, or one is just going
        return frozenset()


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
