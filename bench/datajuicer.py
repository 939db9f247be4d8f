"""DataJuicer in an environment of its own, to run the same recipes on the same data."""

import os
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct

VERSION = "1.6.1"
# Missing in its default installation, but required by its command line.
MISSING = ("aiohttp", "ftfy", "selectolax", "scipy", "nltk")


class DataJuicer(Struct, frozen=True):
    home: str

    @classmethod
    def installed(cls, home: Path) -> "DataJuicer":
        python = home / "bin" / "python"
        if not (home / ".ready").exists():
            print(f"Installing DataJuicer {VERSION} into {home.name} (once)", flush=True)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", f"py-data-juicer=={VERSION}", *MISSING]
            subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
            (home / ".ready").touch()
        return cls(str(home))

    def process(self, recipe: str, folder: str) -> float:
        """-> seconds of the whole command."""
        start = time.perf_counter()
        log = Path(folder, "datajuicer.log")
        with log.open("wb") as out:
            done = subprocess.run(
                [f"{self.home}/bin/dj-process", "--config", recipe],
                env=self._env(folder),
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise RuntimeError("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
        return time.perf_counter() - start

    def snapshot(self, job_dir: str, folder: str) -> tuple[float, bytes]:
        """Returns seconds of the whole command, and its output."""
        start = time.perf_counter()
        command = [f"{self.home}/bin/python", "-m", "data_juicer.utils.job.snapshot", job_dir]
        done = subprocess.run(command, env=self._env(folder), check=True, capture_output=True)
        return time.perf_counter() - start, done.stdout

    def _env(self, folder: str) -> dict[str, str]:
        """Uses a cache of its own: results of an earlier run would count as this one's work."""
        env = {**os.environ, "HF_HOME": f"{folder}/cache", "DATA_JUICER_CACHE_HOME": f"{folder}/cache"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**env, "PATH": f"{self.home}/bin:{os.environ['PATH']}"}
