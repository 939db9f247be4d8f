"""A fixed amount of arithmetic, about SECONDS long; nothing else."""

import sys


def main() -> None:
    total = 0
    for step in range(int(float(sys.argv[1]) * 14_000_000)):
        total += step & 7
    print(total)


main()
