"""Jobs with limits, several at once: memory, CPUs, processes, time; and one that receives a megabyte."""

from typing import Any

from tests.vm.inside.jobs import answer, at_once, own_store, python, run_job

HUNGRY = """
block = fill(400); time.sleep(3); print("survived")
"""

BUSY = """
end = time.monotonic() + 6
while time.monotonic() < end: pass
print(time.process_time())
"""

MANY = """
children = 0
try:
    for _ in range(50):
        if not os.fork():
            time.sleep(10); os._exit(0)
        children += 1
except OSError: pass
print(children, flush=True)
time.sleep(8)
"""

RECEIVER = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
connection, _ = server.accept()
def send():
    client.sendall(b"x" * 1_000_000); client.close()
threading.Thread(target=send).start()
count = 0
while block := connection.recv(65536): count += len(block)
print(count)
"""


def main() -> None:
    with own_store() as folder:

        def memory() -> dict[str, Any]:
            return run_job(folder, "memory", python(HUNGRY), "--memory", "100m")

        def cpus() -> dict[str, Any]:
            return run_job(folder, "cpus", python(BUSY), "--cpus", "0.3")

        def pids() -> dict[str, Any]:
            return run_job(folder, "pids", python(MANY), "--pids", "10")

        def timeout() -> dict[str, Any]:
            return run_job(folder, "timeout", ["sleep", "60"], "--timeout", "2s")

        def network() -> dict[str, Any]:
            return run_job(folder, "network", python(RECEIVER))

        first = at_once(cpus=cpus, memory=memory)
        answer({**first, **at_once(pids=pids, timeout=timeout, network=network)})


main()
