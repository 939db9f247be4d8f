"""Estimates pi by throwing darts: estimate.py DARTS SEED"""

import random
import sys

darts, chance = int(sys.argv[1]), random.Random(int(sys.argv[2]))
hits = sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(darts))
print(4 * hits / darts)
