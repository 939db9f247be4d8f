"""The folder for what the jobs of a run print. Somebody may remove it while the run goes on."""

import os

from joblens.files.private import make_private_folder


class RunFolder:
    def __init__(self, path: str) -> None:
        self._path = path
        self._is_told = False

    def make(self) -> None:
        """Where that cannot be done, the first job says so."""
        try:
            make_private_folder(self._path)
        except OSError:
            self._is_told = True

    def look(self) -> str:
        """Makes it again when it is gone. -> what to say about that, once"""
        if self._is_told or os.path.isdir(self._path):
            return ""
        self._is_told = True
        gone = f"{self._path} was removed while the run goes on: what jobs had printed is lost"
        try:
            make_private_folder(self._path)
        except OSError as error:
            return f"{gone}, and so is what comes: it cannot be made again ({error.strerror})"
        return f"{gone}; it was made again for what comes"
