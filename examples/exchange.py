"""Send 60 MB to itself over TCP while two threads compute. About 4 s.

For `joblens show exchange --threads --network`."""

import hashlib
import socket
import threading
import time

BLOCK = bytes(1_000_000)


def receive(server: socket.socket) -> None:
    connection, _ = server.accept()
    while connection.recv(1 << 16):
        pass


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BLOCK).digest()


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    threads = [
        threading.Thread(target=receive, args=(server,)),
        threading.Thread(target=compute, args=(2.0,)),
        threading.Thread(target=compute, args=(1.0,)),
    ]
    for thread in threads:
        thread.start()
    with socket.create_connection(server.getsockname()) as connection:
        for _ in range(60):
            connection.sendall(BLOCK)
            time.sleep(0.05)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
