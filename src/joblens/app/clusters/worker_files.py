"""The private files by which workers are hired for a run (ports.hiring.WorkerConfigWriter)."""

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

_WORDS = ".words"  # behind the name of a hire's file: what its worker had to complain of
_LONGEST_WORDS = 4000
_WHERE_PROGRAMS_ARE = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    *("LANG", "LC_ALL", "TZ", "MODULEPATH", "LOADEDMODULES"),
)


def hires_folder(settings: Settings, run_uuid: str) -> str:
    """Beside the store, where everybody who may use the store's file can read; of a server: in the home
    folder, which machines of a cluster share."""
    return os.path.join(store_home(store_name(settings)), "hires", run_uuid)


class WorkerConfigFiles:
    """Nothing is written before the first hire is."""

    def __init__(self, settings: Settings, config: str | None, run_uuid: str) -> None:
        self.folder = hires_folder(settings, run_uuid)
        self.hire = WorkerConfig(
            store=store_address(settings),
            config=os.path.abspath(config) if config else "",
            run_uuid=run_uuid,
            user=current_user(),
            boot_id=read_host().boot_id if is_file_store(settings) else "",
            # Jobs find the programs there that whoever starts the run finds here.
            env={name: os.environ[name] for name in _WHERE_PROGRAMS_ARE if name in os.environ},
        )

    def write(self, hire: WorkerConfig) -> str:
        path = os.path.join(self.folder, f"{new_uuid()}.json")
        try:
            make_private_folder(self.folder)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(hire))
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


def leave_words(path: str, text: str) -> None:
    """For `last_words`; where it cannot be written the cluster's own record of what was printed has it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path + _WORDS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
