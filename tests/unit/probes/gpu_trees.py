"""Makes folders that look like /proc and /sys of a machine with a GPU out of tests/fixtures/gpu/*.tree."""

import os
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures" / "gpu"


class GpuTree:
    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.proc, self.sys = str(folder / "proc"), str(folder / "sys")
        path, content = "", list[str]()
        for line in (FIXTURES / f"{name}.tree").read_text().splitlines():
            if line.startswith("/"):
                self._finish(path, content)
                path, content = line, []
            else:
                content.append(line.removeprefix("  "))
        self._finish(path, content)

    def write(self, path: str, text: str) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def change(self, path: str, old: str, new: str) -> None:
        file = self.folder / path.lstrip("/")
        text = file.read_text()
        assert old in text, f"{old} is not in {path}"
        file.write_text(text.replace(old, new))

    def remove_process(self, pid: int) -> None:
        for directory in (f"{self.proc}/{pid}/fd", f"{self.proc}/{pid}/fdinfo"):
            for name in os.listdir(directory):
                os.unlink(f"{directory}/{name}")
            os.rmdir(directory)

    def _finish(self, line: str, content: list[str]) -> None:
        if not line:
            return
        path, arrow, target = line.partition(" -> ")
        if arrow:
            link = self.folder / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        else:
            self.write(path, "\n".join(content) + "\n")
