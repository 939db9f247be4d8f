"""A double-forked child in a session of its own burns SECONDS of CPU while the main process waits for it.

Writes the true use of the child to a file.
"""

import os
import sys
import time


def main() -> None:
    seconds, truth_file = float(sys.argv[1]), sys.argv[2]
    done_read, done_write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while time.process_time() < seconds:
                pass
            with open(truth_file, "w", encoding="ascii") as file:
                file.write(repr(time.process_time()))
            os.write(done_write, b"x")
            os._exit(0)
        os._exit(0)
    os.wait()
    os.read(done_read, 1)


main()
