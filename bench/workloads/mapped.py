"""Maps a file and reads every page of it."""

import mmap
import sys


def main() -> None:
    with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        sum(pages[place] for place in range(0, len(pages), 4096))


main()
