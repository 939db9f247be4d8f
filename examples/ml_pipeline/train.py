"""Logistic regression by gradient descent: train.py RATE data.csv model.json"""

import json
import math
import sys
from array import array

EPOCHS = 3

rate, data, path = float(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(data, encoding="utf-8") as file:
    rows = [array("d", map(float, line.split(","))) for line in file]
held_back = rows[::5]
weights = [0.0] * (len(rows[0]) - 1)
right = 0


def chance_of(row: "array[float]") -> float:
    score = sum(weight * value for weight, value in zip(weights, row, strict=False))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


for epoch in range(EPOCHS):
    for row in rows:
        step = rate * (row[-1] - chance_of(row))
        weights = [weight + step * value for weight, value in zip(weights, row, strict=False)]
    right = sum((chance_of(row) > 0.5) == (row[-1] > 0.5) for row in held_back)
    print(f"epoch {epoch + 1}: {right / len(held_back):.4f} right", flush=True)
with open(path, "w", encoding="utf-8") as file:
    json.dump({"rate": rate, "right": right / len(held_back), "weights": weights}, file)
