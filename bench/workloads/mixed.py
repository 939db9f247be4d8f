"""For SECONDS: bursts of CPU, memory that grows and shrinks, files written, children that come and go."""

import os
import random
import sys
import tempfile
import time


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    dice = random.Random(7)
    held: list[bytearray] = []
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < end:
            stop = time.process_time() + dice.uniform(0.0, 0.05)
            while time.process_time() < stop:
                pass
            held.append(bytearray(dice.randrange(1 << 20)))
            if len(held) > 40:
                del held[: dice.randrange(1, 40)]
            file.write(os.urandom(dice.randrange(1 << 16)))
            if dice.random() < 0.2:
                pid = os.fork()
                if pid == 0:
                    time.sleep(dice.uniform(0.0, 0.1))
                    os._exit(0)
                os.waitpid(pid, 0)
            time.sleep(dice.uniform(0.0, 0.05))


main()
