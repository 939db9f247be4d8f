"""Fill a number of MiB, then exit: hungry.py MEBIBYTES"""

import sys

held = bytearray(b"x") * (int(sys.argv[1]) << 20)
print(f"{len(held) >> 20} MiB held")
