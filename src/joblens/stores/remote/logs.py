"""Output of a job through a server, read by position."""

import urllib.parse
from collections.abc import Callable, Iterator

from joblens.model.errors import InputError
from joblens.model.jobs.job import Record
from joblens.stores.remote.connection import API, Response, ServerConnection

_NOTHING_THERE = 416


class RemoteLog:
    """Continues where it stopped, as `app.jobs.logs.LogReader` does with a file."""

    def __init__(
        self, server: ServerConnection, record: Record, stream: str, note: Callable[[str], None]
    ) -> None:
        self._server = server
        self._path = f"{API}/jobs/{urllib.parse.quote(record.job.uuid, safe='')}/logs/{stream}"
        self._record = record
        self._note = note
        self._position = 0
        self._rest: list[bytes] = []  # read while seeking
        self._is_over = False

    def seek_last_lines(self, count: int) -> None:
        answer = self._server.request("GET", f"{self._path}?tail={count}")
        self._take(answer)

    def read_on(self) -> Iterator[bytes]:
        while not self._is_over:
            if not self._rest:
                headers = {"range": f"bytes={self._position}-"}
                answer = self._server.request("GET", self._path, headers=headers, also=(_NOTHING_THERE,))
                if answer.status == _NOTHING_THERE or not self._take(answer):
                    return
            rest, self._rest = self._rest, []
            yield from rest
        yield from self._rest
        self._rest = []

    def close(self) -> None:
        pass

    def _take(self, answer: Response) -> bool:
        """Returns whether there was anything."""
        attempt = answer.headers.get("x-joblens-attempt")
        known = self._record.attempt
        if attempt is not None and known is not None and int(attempt) != known.number:
            return False  # begun again: its output is read from the start, through its new record
        if answer.headers.get("x-joblens-source") == "stored-tail":
            self._take_tail(answer)
        else:
            self._position = int(answer.headers.get("x-joblens-next", "0"))
            self._rest += [answer.body] if answer.body else []
        return bool(answer.body)

    def _take_tail(self, answer: Response) -> None:
        """The server cannot read the file: the record has the last lines, or none."""
        if not self._record.status.is_final:
            return  # it may be about to appear
        node = answer.headers.get("x-joblens-node", "")
        where = f"on {node}" if node else "on another machine"
        if not answer.body:
            raise InputError(
                f"the output of job {self._record.job.uuid} is not readable by the server",
                hint=f"it was deleted, or it is {where}",
            )
        if not self._is_over:
            self._is_over = True
            self._rest.append(answer.body)
            self._note(
                f"joblens: the server cannot read the output; these are its last lines, the rest is {where}"
            )
