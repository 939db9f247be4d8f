"""One step of Newton's method towards the square root of the number at the end of the name: root_2."""

import json
import sys
from pathlib import Path

name, generation, value = sys.argv[1], sys.argv[2], float(sys.argv[3])
number = float(name.rpartition("_")[2])
better = (value + number / value) / 2
path = Path("output") / name / f"estimate_{generation}.json"
path.write_text(json.dumps({"value": better, "change": abs(better - value)}))
