"""A Ray cluster of this machine in a process of its own. Its processes use CPU all the time, and some tests
measure this process together with all its descendants."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.conftest import REPOSITORY, python_path
from tests.servers import is_over, new_folder, start_detached

OBJECT_STORE_BYTES = 80 * 2**20  # of each node
_START_S = 120.0


class RayCluster:
    """One head node with two CPUs. Ends with `connection`."""

    def __init__(self, connection: socket.socket) -> None:
        self._lines = connection.makefile("rw", encoding="utf-8")
        self.address: str = self._answer()
        self.added: list[int] = []

    def add_node(self, **resources: float) -> int:
        """Adds a node with one CPU and the variables of this process. Returns its number."""
        number: int = self._ask("add", [resources, dict(os.environ)])
        self.added.append(number)
        return number

    def remove_node(self, number: int, *, allow_graceful: bool = True) -> None:
        self._ask("remove", [number, allow_graceful])
        self.added.remove(number)

    def close(self) -> None:
        self._lines.close()

    def _ask(self, *question: Any) -> Any:
        self._lines.write(json.dumps(question) + "\n")
        self._lines.flush()
        return self._answer()

    def _answer(self) -> Any:
        line = self._lines.readline()
        assert line, "the Ray cluster of the tests ended"
        return json.loads(line)


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    folder = new_folder("ray")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JOBLENS_", "XDG_"))}
    env |= {"PYTHONPATH": python_path(REPOSITORY), "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        listener.settimeout(_START_S)
        start_detached([sys.executable, "-m", "tests.ray_head", str(folder / "socket")], folder, env)
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(_START_S)
        cluster = RayCluster(connection)
        yield cluster
        cluster.close()
    pid = int((folder / "pid").read_text())
    deadline = time.monotonic() + _START_S
    while not is_over(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    if not is_over(pid):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def serve(path: str) -> None:
    """Starts a cluster, and adds and removes nodes until the other end of the socket is closed."""
    from ray.cluster_utils import Cluster

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        lines = connection.makefile("rw", encoding="utf-8")
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 2,
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                # That a node is lost shows within seconds.
                "_system_config": {
                    "health_check_initial_delay_ms": 0,
                    "health_check_period_ms": 500,
                    "health_check_failure_threshold": 3,
                },
            },
        )
        nodes: list[Any] = []

        def carry_out(verb: str, details: Any) -> int | None:
            if verb == "add":
                resources, variables = details
                os.environ.update(variables)
                options = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "resources": resources}
                nodes.append(cluster.add_node(**options))
                return len(nodes) - 1
            number, allow_graceful = details
            cluster.remove_node(nodes[number], allow_graceful=allow_graceful)
            return None

        answer: Any = cluster.address
        while True:
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
            question = lines.readline()
            if not question:
                break
            answer = carry_out(*json.loads(question))
        cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    serve(sys.argv[1])
