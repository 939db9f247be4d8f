"""Holds MEGABYTES for 0.3 s somewhere in a job of 5 s; writes its true peak to a file."""

import mmap
import resource
import sys
import time


def main() -> None:
    size, delay_s, truth_file = int(sys.argv[1]) << 20, float(sys.argv[2]), sys.argv[3]
    time.sleep(delay_s)
    block = mmap.mmap(-1, size)
    for place in range(0, size, 4096):
        block[place] = 1
    time.sleep(0.3)
    block.close()
    with open(truth_file, "w", encoding="ascii") as file:
        file.write(repr(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    time.sleep(max(0.0, 5 - delay_s - 0.6))


main()
