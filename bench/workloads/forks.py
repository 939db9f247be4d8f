"""COUNT children of about 3 ms of CPU each, one after the other; writes the truth (its own and its waited-for
children's CPU seconds, as the kernel hands them to wait4) to the file named last."""

import os
import resource
import sys
import time


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def main() -> None:
    count, truth_file = int(sys.argv[1]), sys.argv[2]
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            burn(0.003)
            os._exit(0)
        os.waitpid(pid, 0)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    truth = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    with open(truth_file, "w", encoding="ascii") as file:
        file.write(repr(truth))


main()
