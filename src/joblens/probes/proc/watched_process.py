"""One process under observation, by descriptors that stay with it: once it is gone they answer ESRCH,
also when its pid has been given to another process."""

import os

from joblens.probes.proc.descriptors import BUDGET, DescriptorBudget
from joblens.probes.proc.kernel_files import LAST_CHUNK_BELOW, pread_whole

_READ_SIZE = 4096
_KEPT_FILES = 5  # of those that are read at every tick
_GONE = (FileNotFoundError, ProcessLookupError)


class WatchedProcess:
    """Raises ProcessLookupError from any reading once the process is gone."""

    __slots__ = ("_budget", "_descriptors", "_directory", "_path", "_room", "pid")

    def __init__(self, pid: int, proc: str = "/proc", budget: DescriptorBudget = BUDGET) -> None:
        self.pid = pid
        self._path = f"{proc}/{pid}"
        self._budget = budget
        self._descriptors: dict[str, int] = {}
        self._directory: int | None = None
        self._room = 1 + _KEPT_FILES if budget.take(1 + _KEPT_FILES) else int(budget.take(1))
        if self._room:
            try:
                self._directory = os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.close()
                if isinstance(error, _GONE):
                    raise ProcessLookupError(self._path) from None
                raise

    def read(self, name: str) -> bytes:
        descriptor = self._descriptors.get(name)
        try:
            if descriptor is not None:
                return os.pread(descriptor, _READ_SIZE, 0)
            descriptor = self._open(name, os.O_RDONLY)
            if len(self._descriptors) + 1 < self._room:
                self._descriptors[name] = descriptor
                return os.pread(descriptor, _READ_SIZE, 0)
            try:
                return os.pread(descriptor, _READ_SIZE, 0)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def read_whole(self, name: str) -> bytes:
        """For a file that may be longer than the kernel hands out at once."""
        data = self.read(name)
        return data if len(data) < LAST_CHUNK_BELOW else self.read_once(name)

    def read_once(self, name: str) -> bytes:
        """All of it, without keeping the descriptor: for what is looked at now and then."""
        try:
            descriptor = self._open(name, os.O_RDONLY)
            try:
                return pread_whole(descriptor)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def names_in(self, name: str) -> list[str]:
        """Of a directory such as 'task'."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                return os.listdir(descriptor)
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def size_of(self, name: str) -> int:
        """st_size; for 'fd' the kernel puts the number of open descriptors there since Linux 6.2."""
        descriptor = self._descriptors.get(name)
        try:
            if descriptor is not None:
                return os.stat(descriptor).st_size
            descriptor = self._open(name, os.O_PATH)
            if len(self._descriptors) + 1 < self._room:
                self._descriptors[name] = descriptor
                return os.stat(descriptor).st_size
            try:
                return os.stat(descriptor).st_size
            finally:
                os.close(descriptor)
        except _GONE:
            raise ProcessLookupError(self._path) from None

    def close(self) -> None:
        descriptors = list(self._descriptors.values())
        if self._directory is not None:
            descriptors.append(self._directory)
        self._descriptors, self._directory = {}, None
        self._budget.give_back(self._room)
        self._room = 0
        for descriptor in descriptors:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        if self._directory is None:
            return os.open(f"{self._path}/{name}", flags | os.O_CLOEXEC)
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._directory)
