"""What is left of a worker's room while it is given tickets."""

from joblens.model.clusters.placing import NodeCapacity
from joblens.model.jobs.job import Requirements


class RoomLeft:
    def __init__(self, room: NodeCapacity | None) -> None:
        self._room = room
        self._places = room.places if room is not None else None
        self._memory_bytes = room.memory_bytes if room is not None else None
        self._gpus = room.gpus if room is not None else None
        self.has_refused = False

    def take(self, asked: Requirements) -> bool:
        """Whether it fits; then there is less for the next."""
        room = self._room
        if room is None:
            return True
        places = max(1, -int(-(asked.cpus or 1) // 1))
        memory_bytes, gpus = asked.memory_bytes or 0, asked.gpus or 0
        lasts_s = asked.timeout_s if asked.timeout_s is not None else room.usual_s or 0.0
        is_late = room.time_s is not None and lasts_s > room.time_s
        lacks = (
            (self._places is not None and places > self._places)
            or (self._memory_bytes is not None and memory_bytes > self._memory_bytes)
            or (self._gpus is not None and gpus > self._gpus)
        )
        if is_late or lacks:
            self.has_refused = True
            return False
        if self._places is not None:
            self._places -= places
        if self._memory_bytes is not None:
            self._memory_bytes -= memory_bytes
        if self._gpus is not None:
            self._gpus -= gpus
        return True
