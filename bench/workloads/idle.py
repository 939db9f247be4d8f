"""PROCESSES processes that sleep for SECONDS; writes their own use to a file."""

import os
import resource
import sys
import time


def main() -> None:
    processes, seconds, truth_file = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    for _ in range(processes - 1):
        if os.fork() == 0:
            time.sleep(seconds)
            os._exit(0)
    time.sleep(seconds)
    for _ in range(processes - 1):
        os.wait()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(truth_file, "w", encoding="ascii") as file:
        file.write(repr(sum(one.ru_utime + one.ru_stime for one in used)))


main()
