"""A small honest job: burns CPU in several processes, allocates, writes and reads a file. About 4 seconds."""

import hashlib
import os
import tempfile
import time

MIB = 1024**2


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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


print("one process computes for a second", flush=True)
burn(1.0)
print("two children compute for a second each", flush=True)
burn_in_children(2, 1.0)
print("200 MiB are held for a second and a half", flush=True)
held = bytearray(b"x") * (200 * MIB)  # one block, every page of it written
time.sleep(1.5)
del held
print("32 MiB are written and read again", flush=True)
write_and_read(32)
print("done", flush=True)
