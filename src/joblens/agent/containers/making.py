"""A container as a job wants it: asked for, made, looked at and taken away, with a note of all of it for
whoever owns the job."""

import os
import time
from typing import Any

from msgspec.structs import replace

from joblens.agent.containers.gauge import ContainerGauge, EngineProcess, OomWatch
from joblens.agent.containers.note import ContainerNote, write_note
from joblens.agent.containers.order import ContainerOrder, body_for, is_terminal_job
from joblens.agent.containers.refusal import NOT_EXECUTABLE, NOT_FOUND, REFUSED, code_for, why_refused
from joblens.agent.containers.streams import ContainerStreams
from joblens.model.errors import ContainerError
from joblens.probes.containers.api import ContainerApi, connect
from joblens.probes.containers.info import JOB_LABEL, ContainerInfo, description

REMOVE_S = 10.0
_LABELLED_S = 5.0


class Refused(Exception):
    """The container did not come to run."""

    def __init__(self, message: str, code: int = REFUSED, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class JobContainer:
    """`note` is what is known of it so far, on disk as soon as it is known."""

    api: ContainerApi
    streams: ContainerStreams
    gauge: ContainerGauge
    oom_watch: OomWatch

    def __init__(self, order: ContainerOrder, argv: list[str], env: dict[str, str]) -> None:
        self._order = order
        self._argv = argv
        self._env = env
        self._engine: EngineProcess
        self._asked_at_s = 0.0
        self.note = ContainerNote(image=order.container.image)
        self.ended_pidfd = -1  # of its first process; -1: not seen from here, or it has ended

    def noted(self, **changes: Any) -> None:
        self.note = replace(self.note, **changes)
        write_note(self._order.note_path, self.note)

    def make(self) -> None:
        """It runs when this returns. Raises Refused or ContainerError."""
        asked = self._order.container
        self.api = connect(asked.engine, asked.socket)
        self._engine = EngineProcess(self.api.engine_pid())
        self.noted(engine=self.api.engine, engine_version=self.api.version, socket=self.api.socket)
        self._have_image()
        self._asked_at_s = time.time()
        for order in self._orders():
            try:
                self._make(order)
            except ContainerError as error:
                self.take_away()
                if order.cgroup_parent and "cgroup" in str(error).lower():
                    continue  # an engine that has systemd make its groups takes no place of ours
                raise self._could_not(error) from error
            break

    def _orders(self) -> list[ContainerOrder]:
        return list(
            {self._order.cgroup_parent: self._order, "": replace(self._order, cgroup_parent="")}.values()
        )

    def _have_image(self) -> None:
        image, engine = self._order.container.image, self.api.engine
        if self.api.has_image(image):
            return
        if not self._order.container.pull:
            raise Refused(f"{engine} has no image {image}", hint=f"{engine} pull {image}, or --pull")
        self.api.pull(image)

    def _make(self, order: ContainerOrder) -> None:
        body = body_for(self.api.engine, order, self._argv, self._env, is_terminal=is_terminal_job())
        container_id = self.api.create(body, order.container.name)
        self.noted(id=container_id, is_below_ours=bool(order.cgroup_parent), is_removed=False)
        stream, first = self.api.attach(container_id)
        try:
            self.api.start(container_id)
        except BaseException:
            stream.close()
            raise
        self.streams = ContainerStreams(stream, first, is_terminal=is_terminal_job())

    def look_at_started(self) -> None:
        """Its limits, its groups and its first process, through which the kernel tells of its end."""
        self.copy_size()
        unknown: dict[str, str] = {}
        try:
            info = self.api.inspect(self.note.id)
        except ContainerError as error:
            unknown["limits"] = str(error)
            info = None
        if info is not None:
            self.note = _with_facts(self.note, info, self._order.cgroup_parent, self._asked_at_s)
        if info is not None and info.pid is not None:
            try:
                self.ended_pidfd = os.pidfd_open(info.pid)
            except OSError as error:
                unknown["processes"] = f"its processes are not seen from here: {error.strerror}"
        self.noted(unknown=unknown)
        self.oom_watch = OomWatch(self.note.groups)
        self.gauge = ContainerGauge(self.note, self._engine)

    def _could_not(self, error: ContainerError) -> Refused:
        """With the codes of engines' own command lines. What the engine and all below it said of a program
        that is not there is kept, and not told."""
        text = str(error)
        code = code_for(text) if self.note.id else REFUSED
        program = self._argv[0] if self._argv else self._order.container.entrypoint or "its command"
        image = self._order.container.image
        self.noted(unknown={"start": text})
        if code == NOT_FOUND:
            return Refused(f"{program}: not found in the image {image}", code)
        if code == NOT_EXECUTABLE:
            return Refused(f"{program}: cannot be executed in the image {image}", code)
        return Refused(f"{self.api.engine} refused the container: {text}{why_refused(text)}")

    def copy_size(self) -> None:
        if not is_terminal_job():
            return
        try:
            self.api.resize(self.note.id, *self.streams.size())
        except (ContainerError, OSError):
            pass

    def take_away(self, patience_s: float = REMOVE_S) -> None:
        """The container itself. One whose id the engine could not tell any more is found by its label."""
        if not hasattr(self, "api"):
            self.note = replace(self.note, is_removed=True)
            return
        label = f"{JOB_LABEL}={self._order.uuid}"
        try:
            ids = [self.note.id] if self.note.id else self.api.labelled(label, timeout_s=_LABELLED_S)
            for container_id in ids:
                self.api.remove(container_id, timeout_s=patience_s)
            self.note = replace(self.note, is_removed=True)
        except ContainerError:
            pass  # the next joblens finds it by its note
        write_note(self._order.note_path, self.note)


def _with_facts(
    note: ContainerNote, info: ContainerInfo, cgroup_parent: str, asked_at_s: float
) -> ContainerNote:
    is_below = [cgroup_parent in path for path in info.groups.values()] if cgroup_parent else []
    startup_s = None if info.started_at_us is None else max(0.0, info.started_at_us / 1e6 - asked_at_s)
    return replace(
        note,
        pid=info.pid,
        layout=info.layout,
        groups=info.groups,
        is_below_ours=any(is_below) if info.groups else note.is_below_ours,
        startup_s=startup_s,
        **description(info),
    )
