"""A small honest job of known size: 3 s of CPU in three processes, 200 MiB of memory, 32 MiB written."""

import hashlib
import os
import tempfile
import time

MIB = 1024**2


def burn(seconds: float) -> None:
    """Seconds of CPU, however busy the machine is."""
    while time.process_time() < seconds:
        hashlib.sha256(bytes(64 * 1024)).digest()


def burn_in_children(count: int, seconds: float) -> None:
    children = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            burn(seconds)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def write_and_read(mebibytes: int) -> None:
    block = os.urandom(MIB)
    with tempfile.TemporaryFile() as file:
        for _ in range(mebibytes):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        while file.read(MIB):
            pass


print("one process uses 1 s of CPU", flush=True)
burn(1.0)
print("two children use 1 s each", flush=True)
burn_in_children(2, 1.0)
print("200 MiB of memory are held", flush=True)
held = bytearray(b"x") * (200 * MIB)  # one block, every page of it written
time.sleep(1)
del held
print("32 MiB are written to a file and read again", flush=True)
write_and_read(32)
print("done", flush=True)
