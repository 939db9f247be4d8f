"""One iteration of a loop: check the last estimate, then add the next step or end the loop."""

import json
import sys
from pathlib import Path

from joblens import Orchestrator

TOLERANCE = 1e-6

loop = Orchestrator.from_env(lineage_fallback=sys.argv[1] if len(sys.argv) > 1 else None)
generation = loop.generation
folder = Path("output") / loop.lineage
folder.mkdir(parents=True, exist_ok=True)
last = folder / f"estimate_{generation}.json"
found = json.loads(last.read_text()) if generation else {"value": 1.0, "change": None}

if generation and found["change"] < TOLERANCE:
    loop.converge(state={"value": found["value"], "generations": generation})
    print(f"{loop.lineage}: {found['value']:.9f} after {generation} generations")
    sys.exit()

following = generation + 1
refine, again = f"refine_{loop.lineage}_{following}", f"check_{loop.lineage}_{following}"
loop.spawn(
    [
        {
            "name": refine,
            "command": f"python3 converge/refine.py {loop.lineage} {following} {found['value']}",
            "resource_requirements": "work",
        },
        {
            "name": again,
            "command": "python3 converge/orchestrator.py",
            "depends_on": [refine],
            "resource_requirements": "check",
        },
    ],
    state={"generation": following},
)
print(f"{loop.lineage}: added {refine} and {again}")
