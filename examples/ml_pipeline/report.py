"""Names the best of several models: report.py model.json..."""

import json
import sys

models = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        models.append(json.load(file))
for model in sorted(models, key=lambda model: -model["right"]):
    print(f"rate {model['rate']}: {model['right']:.4f} right")
