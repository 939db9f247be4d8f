"""View of a run that notes its calls."""

import threading

from joblens.agent.runs.view import NoView
from joblens.model.runs.run import RunStatus


class Notes(NoView):
    """Writes down the calls; waits in a tick until it is let, fails on a note."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_ticking, self.may_tick = threading.Event(), threading.Event()

    def note(self, text: str) -> None:
        if text == "fail":
            raise ValueError("no terminal")
        self.calls.append(text)

    def tick(self) -> None:
        self.is_ticking.set()
        self.may_tick.wait(20)
        self.calls.append("tick")

    def close(self, status: RunStatus) -> None:
        self.calls.append(f"close {status.value}")
