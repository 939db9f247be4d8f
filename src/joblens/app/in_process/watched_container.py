"""A container that others started, measured for a Python program."""

import socket
import time
from collections.abc import Iterable
from typing import Any

from joblens.agent.containers.watch import (
    ContainerFinder,
    ContainerWatch,
    GroupReader,
    Reader,
    RunningContainer,
)
from joblens.agent.measuring.window_measurement import Measurement
from joblens.analysis.formats.container import container_stats
from joblens.app.in_process.host_meter import has_linux, shared_instruments
from joblens.app.wiring.drivers import SystemClock
from joblens.model.errors import ContainerError
from joblens.model.jobs.job import Job
from joblens.model.redaction.secrets import redact_text
from joblens.model.values.ids import new_uuid
from joblens.probes.containers.api import ContainerApi, connect
from joblens.probes.containers.info import ContainerInfo

# Metric of a profile -> instruments for a container.
_PROBES = {"network": "network", "gpu": "gpu", "energy": "energy", "threads": "threads"}


class WatchedContainer:
    """Measures from now on; the container may be started later."""

    def __init__(self, name: str, interval_s: float, metrics: Iterable[str]) -> None:
        self.name = name
        finder = ContainerFinder(name, _connect, can_read_groups=has_linux())
        self._host = _open_host()
        self._job = Job(
            uuid=new_uuid(),
            argv=(),
            created_at_us=time.time_ns() // 1000,
            probes=tuple(_PROBES[metric] for metric in metrics if metric in _PROBES),
        )
        self._watch = ContainerWatch(finder, interval_s, self._host.read, self._open_reader)

    def stats(self, measured: Measurement) -> dict[str, str]:
        """Returns `container_stats` of the measured time."""
        info = self._watch.info
        limit = None if info is None else info.memory_bytes
        return container_stats(measured.kept, measured.usage, limit, measured.counted_s)

    def peek(self) -> Measurement:
        return self._watch.peek()

    def end(self) -> Measurement:
        measured = self._watch.end()
        self._host.close()
        return measured

    def problem(self) -> str:
        """Returns why it was not found; '' if it was."""
        if self._watch.is_found():
            return ""
        return self._watch.problem() or "the container engine has not responded yet"

    def _open_reader(
        self, found: RunningContainer, start_mono_ns: int, base: dict[str, int] | None
    ) -> Reader:
        return GroupReader(
            found, self._job, shared_instruments(), self._host, SystemClock(), start_mono_ns, base
        )


def container_info(name: str) -> dict[str, Any]:
    """Returns the engine's information. Raises ContainerError."""
    api = _connect()
    return _form(api, api.inspect(name))


def _connect() -> ContainerApi:
    if not hasattr(socket, "AF_UNIX"):
        raise ContainerError("container engines use Unix sockets, which Python lacks on this system")
    return connect(timeout_s=5.0)


def _form(api: ContainerApi, info: ContainerInfo) -> dict[str, Any]:
    """Returns the container's facts without its environment, which may have secrets."""
    return {
        "id": info.id,
        "name": info.name,
        "image": info.image,
        "image_id": info.image_id,
        "status": info.status,
        "is_running": info.is_running,
        "pid": info.pid,
        "exit_code": info.exit_code,
        "started_at_us": info.started_at_us,
        "engine": api.engine,
        "engine_version": api.version,
        "network_mode": info.network_mode,
        "limits": {
            "cpus": info.cpus,
            "cpu_list": info.cpu_list,
            "memory_bytes": info.memory_bytes,
            "memory_swap_bytes": info.memory_swap_bytes,
            "pids": info.pids,
        },
        "volumes": [redact_text(volume) for volume in info.volumes],
        "devices": list(info.devices),
        "groups": dict(info.groups),
    }


class _PortableHost:
    name = "host"

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}

    def read(self) -> dict[str, Any]:
        from joblens.probes.host.portable import read_portable_host

        return read_portable_host()

    def close(self) -> None:
        """Nothing to close."""


def _open_host() -> Any:
    if not has_linux():
        return _PortableHost()
    from joblens.probes.host.machine_load import HostProbe

    return HostProbe()
