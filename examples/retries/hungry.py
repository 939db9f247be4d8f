"""Fills a number of MiB, then ends well: hungry.py MEBIBYTES"""

import sys

held = bytearray(b"x") * (int(sys.argv[1]) << 20)
print(f"{len(held) >> 20} MiB held")
