"""Cost of single operations of agents and readers: CPU time of server, pooler and client.

One after the other on an idle system, so that the figures are independent.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from bench.scale_agents import Agent, Counts, Script
from bench.scale_readers import PEOPLE, look_of
from joblens.stores.postgres import PostgresStore

_AGENTS = 100
_SAMPLES_BEFORE = 8  # samples of a job when it ends
_READS = 10


class Once(Struct):
    """Milliseconds."""

    server: float = 0.0
    pooler: float = 0.0
    asking: float = 0.0
    times: int = 0


class Scale:
    """Measures calls by CPU time of the processes before and after."""

    def __init__(self, server_pid: int, pooler_pid: int | None) -> None:
        self._server_pid = server_pid
        self._pooler_pid = pooler_pid
        self.found: dict[str, Once] = {}

    def weigh(self, name: str, call: Callable[[], object]) -> None:
        server, pooler, asking = self._now()
        call()
        asked = time.process_time() * 1000
        time.sleep(0.0005)  # until background work of the server has finished too
        after = self._now()
        one = self.found.setdefault(name, Once())
        one.server += after[0] - server
        one.pooler += after[1] - pooler
        one.asking += asked - asking
        one.times += 1

    def _now(self) -> tuple[float, float, float]:
        children = (
            Path(f"/proc/{self._server_pid}/task/{self._server_pid}/children").read_text("ascii").split()
        )
        server = sum(map(_ran_ms, (str(self._server_pid), *children)))
        pooler = 0.0 if self._pooler_pid is None else _ran_ms(str(self._pooler_pid))
        return server, pooler, time.process_time() * 1000


def _ran_ms(pid: str) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e6
    return 0.0


def costs(script: Script, submit: Callable[[int], None], scale: Scale) -> Iterator[str]:
    """`submit` queues so many jobs."""
    submit(2 * _AGENTS)
    dice = random.Random(1)
    agents = [Agent(50_000 + place, script, Counts(lags_s=[]), dice) for place in range(_AGENTS)]
    for agent in agents:
        for duty in ("renew", "claim", *["sample"] * _SAMPLES_BEFORE):
            agent.do(duty)
    for agent in agents:
        for duty, name in _DUTIES.items():
            scale.weigh(name, lambda agent=agent, duty=duty: agent.do(duty))  # type: ignore[misc]
    for agent in agents:
        agent.close()
    store = PostgresStore(script.url)
    for name in PEOPLE:
        look = look_of(name, store)
        look()
        for _ in range(_READS):
            scale.weigh(name, look)
    store.close()
    for name, one in scale.found.items():
        each = (one.server / one.times, one.pooler / one.times, one.asking / one.times)
        yield "  one {:<24} {:6.2f} ms PostgreSQL, {:5.2f} PgBouncer, {:6.2f} who asks".format(name, *each)


_DUTIES = {
    "renew": "renewal",
    "watch": "look for lost ones",
    "sample": "sample and details",
    "end": "end of a job",
    "claim": "claim and start",
}
