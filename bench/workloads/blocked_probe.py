"""A job that is sampled ten times per second while an instrument's driver blocks:

SECONDS, and the blocking time.

Prints the delay of the latest tick, in milliseconds.
"""

import sys
import time
import types
from typing import Any

import joblens
from joblens.agent.instruments import table as registry

INTERVAL_S = 0.1
seconds, blocks_s = float(sys.argv[1]), float(sys.argv[2])


class Blocking:
    name, interval_s = "blocking", 0.5

    def read(self) -> int:
        time.sleep(blocks_s)
        return 0

    def close(self) -> None:
        pass


class Waiting:
    name = "blocking"

    def __init__(self, thread: Any) -> None:
        self.sources: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.thread = thread
        thread.use()

    def read(self) -> dict[str, Any]:
        self.thread.latest()
        return {}

    def close(self) -> None:
        self.thread.leave()


if blocks_s:
    module = types.ModuleType("blocking_instrument")
    module.open_probe = lambda _, them: Waiting(them.driver("blocking", Blocking))  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    registry._MAKERS["gpu"] = (module.__name__,)  # noqa: SLF001 - replaces a real one
result = joblens.run(["sleep", str(seconds)], interval=INTERVAL_S, probes="all")
ticks = [sample.elapsed_us / 1e6 for sample in result.samples[1:-1]]
places = [tick - INTERVAL_S * round((tick - ticks[0]) / INTERVAL_S) for tick in ticks]
print((max(places) - min(places)) * 1000, len(ticks))
