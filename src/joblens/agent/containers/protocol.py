"""Protocol between the owner of a job and its container client: the order, the signals, and the note for
the owner."""

import contextlib
import os
import signal
import termios
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.files.atomic import write_atomically
from joblens.files.private import make_private_folder, names_with_suffix
from joblens.model.jobs.containers import is_path
from joblens.model.jobs.job import ContainerJob
from joblens.probes.containers.info import JOB_LABEL
from joblens.probes.proc.kernel_files import read_text

# Makes the client end the job now, whatever the container does.
GIVE_UP = signal.SIGRTMAX

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def is_deadly(number: int, pid: int) -> bool:
    """Returns whether the process neither handles nor ignores nor blocks the signal: it would die of it,
    except as the first process of a container, which does not receive it."""
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
    """Returns whether Ctrl-C on the container's terminal reaches its first process: the terminal turns
    the key into a signal, and that process is in the foreground."""
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


_SUFFIX = ".container"


class ContainerNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a container; unknown parts are empty."""

    engine: str = ""
    engine_version: str = ""
    socket: str = ""
    id: str = ""
    name: str = ""
    image: str = ""
    image_id: str = ""
    network_mode: str = ""
    pid: int | None = None  # of its first process; None: not visible from here
    layout: str = ""
    groups: dict[str, str] = {}  # of its own
    is_below_ours: bool = False  # its groups are below the job's
    started_at_us: int | None = None
    startup_s: float | None = None
    cpus: float | None = None
    cpu_list: str = ""
    memory_bytes: int | None = None
    memory_swap_bytes: int | None = None
    pids: int | None = None
    volumes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    overhead: dict[str, float] = {}
    unknown: dict[str, str] = {}
    last: dict[str, Any] = {}  # counters of its own groups, read when it ended
    oom_killed: bool = False
    has_ended: bool = False
    refusal: str = ""  # why it never ran
    silence: str = ""  # why its exit code is unknown
    is_removed: bool = False  # the engine has removed it
    tries: int = 0  # attempts to remove it without an answer


def note_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _SUFFIX)


def jobs_with_note(spool_dir: str) -> list[str]:
    """Returns jobs that have a note, by uuid."""
    return names_with_suffix(spool_dir, _SUFFIX)


def write_note(path: str, note: ContainerNote) -> None:
    """Writes the note atomically. A full disk must not stop the container."""
    with contextlib.suppress(OSError):
        make_private_folder(os.path.dirname(path))
        write_atomically(path, msgspec.json.encode(note))


def read_note(path: str) -> ContainerNote | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return msgspec.json.decode(file.read(), type=ContainerNote)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_note(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


ORDER_VARIABLE = "JOBLENS_CONTAINER"
ENV_PREFIX = "JOBLENS_CONTAINER_ENV_"  # the container's variables, separate from the client's own
_CPU_PERIOD_USEC = 100_000
_CPU_QUOTA_FLOOR_USEC = 1_000


class ContainerOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Order for the client. Has no secret: the container's variables are passed as variables of the
    client."""

    uuid: str
    container: ContainerJob
    note_path: str  # for the facts of the client
    cgroup_parent: str = ""  # path below every mount; '': chosen by the engine
    cpus: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    gpus: int | None = None
    cpu_list: str = ""


def as_variables(order: ContainerOrder) -> dict[str, str]:
    return {ORDER_VARIABLE: msgspec.json.encode(order).decode()}


def order_from(environ: Mapping[str, str]) -> ContainerOrder:
    return msgspec.json.decode(environ[ORDER_VARIABLE], type=ContainerOrder)


def with_whole_paths(container: ContainerJob, cwd: str = "") -> ContainerJob:
    """Returns it with volumes and socket resolved from `cwd`; '': the current directory."""

    def whole(path: str) -> str:
        return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))

    volumes = []
    for text in container.volumes:
        source, _, rest = text.partition(":")
        volumes.append(f"{whole(source) if is_path(source) else source}:{rest}")
    socket = container.socket
    if socket and "://" not in socket:
        socket = whole(socket)
    return replace(container, volumes=tuple(volumes), socket=socket)


def client_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the client that become these variables of the container."""
    return {ENV_PREFIX + name: value for name, value in env.items()}


def container_env(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENV_PREFIX): value for name, value in environ.items() if name.startswith(ENV_PREFIX)
    }


def body_for(
    engine: str,
    order: ContainerOrder,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    is_terminal: bool,
) -> dict[str, Any]:
    """Returns the body for `ContainerApi.create`."""
    make = _podman_body if engine == "podman" else _docker_body
    return make(order, argv, env, is_terminal=is_terminal)


def _docker_body(
    order: ContainerOrder, argv: Sequence[str], env: Mapping[str, str], *, is_terminal: bool
) -> dict[str, Any]:
    container = order.container
    host: dict[str, Any] = {
        "Binds": list(container.volumes),
        "Devices": [_device(text) for text in container.devices],
        "LogConfig": {"Type": "none", "Config": {}},  # the client stores the output
        **_present(
            CgroupParent=order.cgroup_parent,
            NetworkMode=container.network,
            CpusetCpus=order.cpu_list,
            Memory=order.memory_bytes,
            MemorySwap=order.memory_bytes,  # memory and swap together: no swap
            PidsLimit=order.pids,
        ),
    }
    if order.cpus is not None:
        host |= {"CpuPeriod": _CPU_PERIOD_USEC, "CpuQuota": _quota(order.cpus)}
    if order.gpus:
        host["DeviceRequests"] = [{"Driver": "", "Count": order.gpus, "Capabilities": [["gpu"]]}]
    return {
        "Image": container.image,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Tty": is_terminal,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Labels": {JOB_LABEL: order.uuid},
        "HostConfig": host,
        **_present(
            Cmd=list(argv),
            Entrypoint=[container.entrypoint] if container.entrypoint else None,
            User=container.user,
            WorkingDir=container.workdir,
        ),
    }


def _podman_body(
    order: ContainerOrder, argv: Sequence[str], env: Mapping[str, str], *, is_terminal: bool
) -> dict[str, Any]:
    container = order.container
    mounts, volumes = _podman_mounts(container.volumes)
    devices = [{"path": text} for text in container.devices]
    devices += [{"path": f"nvidia.com/gpu={number}"} for number in range(order.gpus or 0)]
    limits = {
        **({"cpu": _podman_cpu(order)} if order.cpus is not None or order.cpu_list else {}),
        **(
            {"memory": {"limit": order.memory_bytes, "swap": order.memory_bytes}}
            if order.memory_bytes
            else {}
        ),
        **({"pids": {"limit": order.pids}} if order.pids is not None else {}),
    }
    return {
        "image": container.image,
        "env": dict(env),
        "terminal": is_terminal,
        "stdin": True,
        "labels": {JOB_LABEL: order.uuid},
        "log_configuration": {"driver": "none"},
        "cgroups_mode": "no-conmon",  # the engine's own helper is not part of the job
        **_present(
            command=list(argv),
            entrypoint=[container.entrypoint] if container.entrypoint else None,
            user=container.user,
            work_dir=container.workdir,
            cgroup_parent=order.cgroup_parent,
            mounts=mounts,
            volumes=volumes,
            devices=devices,
            resource_limits=limits,
        ),
        **_podman_network(container.network),
    }


def _podman_cpu(order: ContainerOrder) -> dict[str, Any]:
    quota = {} if order.cpus is None else {"quota": _quota(order.cpus), "period": _CPU_PERIOD_USEC}
    return {**quota, **_present(cpus=order.cpu_list)}


def _podman_mounts(texts: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns folders of this machine, and named volumes of the engine."""
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    for text in texts:
        source, target, *options = text.split(":")
        chosen = options[0].split(",") if options else []
        if source.startswith("/"):
            mounts.append(
                {"type": "bind", "source": source, "destination": target, "options": ["rbind", *chosen]}
            )
        else:
            volumes.append({"Name": source, "Dest": target, "Options": chosen})
    return mounts, volumes


def _podman_network(mode: str) -> dict[str, Any]:
    if not mode:
        return {}
    kind, _, value = mode.partition(":")
    if kind in ("none", "host", "bridge", "private", "slirp4netns", "pasta"):
        return {"netns": {"nsmode": kind}}
    if kind in ("container", "ns"):
        return {"netns": {"nsmode": "path" if kind == "ns" else kind, "value": value}}
    return {"netns": {"nsmode": "bridge"}, "networks": {mode: {}}}


def _device(text: str) -> dict[str, str]:
    path, _, rest = text.partition(":")
    inside, _, permissions = rest.partition(":")
    return {
        "PathOnHost": path,
        "PathInContainer": inside or path,
        "CgroupPermissions": permissions or "rwm",
    }


def _quota(cpus: float) -> int:
    return max(_CPU_QUOTA_FLOOR_USEC, round(cpus * _CPU_PERIOD_USEC))


def _present(**named: Any) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value}


def is_terminal_job() -> bool:
    return os.isatty(0) and os.isatty(1)
