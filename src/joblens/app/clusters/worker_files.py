"""Private configuration files of pilot workers (ports.workers.WorkerConfigWriter)."""

import contextlib
import os
import shutil
import sys

import msgspec

from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import is_file_store, store_address, store_home, store_name
from joblens.files.private import make_private_folder
from joblens.model.clusters.placement import WorkerConfig
from joblens.model.errors import PlacingError
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.probes.host.machine_load import read_host

_WORDS = ".words"  # suffix of the file with a worker's error
_LONGEST_WORDS = 4000
_WHERE_PROGRAMS_ARE = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    *("LANG", "LC_ALL", "TZ", "MODULEPATH", "LOADEDMODULES"),
)


def worker_config_folder(settings: Settings, run_uuid: str) -> str:
    """Returns a folder next to the store, readable by everyone who may use the store's file; for a
    server, in the home folder, which machines of a cluster share."""
    return os.path.join(store_home(store_name(settings)), "hires", run_uuid)


class WorkerConfigFiles:
    """Writes nothing before the first worker."""

    def __init__(self, settings: Settings, config: str | None, run_uuid: str) -> None:
        self.folder = worker_config_folder(settings, run_uuid)
        self.config = WorkerConfig(
            store=store_address(settings),
            config=os.path.abspath(config) if config else "",
            run_uuid=run_uuid,
            user=current_user(),
            boot_id=read_host().boot_id if is_file_store(settings) else "",
            # Jobs find the programs that are found here.
            env={name: os.environ[name] for name in _WHERE_PROGRAMS_ARE if name in os.environ},
        )

    def write(self, config: WorkerConfig) -> str:
        path = os.path.join(self.folder, f"{new_uuid()}.json")
        try:
            make_private_folder(self.folder)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(config))
        except OSError as error:
            raise PlacingError(f"the worker configuration cannot be written: {error}") from error
        return path

    def argv(self, path: str) -> list[str]:
        return [sys.executable, "-P", "-m", "joblens.app.clusters.pilot_worker", path]

    def last_words(self, path: str) -> str:
        try:
            with open(path + _WORDS, encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST_WORDS).strip()
        except OSError:
            return ""

    def drop(self, path: str) -> None:
        for name in (path, path + _WORDS):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_error(path: str, text: str) -> None:
    """For `last_words`; if it cannot be written, the cluster has its own record of the output."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path + _WORDS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
