"""Makes a table of points in two classes: prepare.py ROWS data.csv"""

import random
import sys

FEATURES = 20

rows, path = int(sys.argv[1]), sys.argv[2]
chance = random.Random(7)
truth = [chance.gauss(0, 1) for _ in range(FEATURES)]
table = []  # everything in memory at once, as a first version does
for _ in range(rows):
    point = [chance.gauss(0, 1) for _ in truth]
    score = sum(a * b for a, b in zip(truth, point, strict=True)) + chance.gauss(0, 1)
    table.append([*point, float(score > 0)])
with open(path, "w", encoding="utf-8") as file:
    file.writelines(",".join(f"{number:.4f}" for number in row) + "\n" for row in table)
print(f"{rows} rows in {path}")
