"""Sends MEGABYTES to itself over TCP in a network namespace: loopback.py MEGABYTES ADDRESS TRUTH

Writes the counters of the namespace's loopback interface to TRUTH.
"""

import fcntl
import socket
import struct
import sys
import threading
import time

PIECE = 1 << 20
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def bring_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def transfer(total: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        served, _ = server.accept()
        sender = threading.Thread(target=send, args=(client, total))
        sender.start()
        while served.recv(PIECE):
            pass
        sender.join()
        served.close()


def send(client: socket.socket, total: int) -> None:
    piece = bytes(PIECE)
    while total:
        client.sendall(piece[:total])
        total -= min(total, PIECE)
    client.close()


def carried() -> int:
    with open("/proc/net/dev", encoding="ascii") as file:
        line = next(line for line in file if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def main() -> None:
    megabytes, address, truth = sys.argv[1:]
    bring_up()
    transfer(int(megabytes) * 1_000_000, address)
    time.sleep(0.2)  # the last acknowledgements
    with open(truth, "w", encoding="ascii") as file:
        file.write(str(carried()))


main()
