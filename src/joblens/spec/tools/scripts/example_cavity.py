"""Flow in a square cavity with a moving lid, with OpenFOAM's blockMesh and icoFoam.

Writes the case from its parameters, creates the mesh, and runs until the flow is steady. Checks that the eddy
has formed, mass is conserved, and the flow did not change at the end. Parameters are environment variables:
SIM_REYNOLDS, SIM_CELLS, SIM_END_TIME. Writes result.json, and the case in the folder cavity.
"""

import json
import math
import os
import re
import subprocess
import sys
import time

REYNOLDS = float(os.environ.get("SIM_REYNOLDS", "100"))
CELLS = int(os.environ.get("SIM_CELLS", "20"))
END_TIME = float(os.environ.get("SIM_END_TIME", "10"))

CASE = "cavity"
COURANT = 0.5  # how far the fastest flow gets per step, in cells
STEADY = 1e-2  # change of velocity in the last tenth of the time, relative to the lid's

HEADER = """FoamFile
{{
    version 2.0;
    format ascii;
    class {kind};
    object {name};
}}
"""

MESH = """
convertToMeters 1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 0.1) (1 0 0.1) (1 1 0.1) (0 1 0.1));
blocks (hex (0 1 2 3 4 5 6 7) ({cells} {cells} 1) simpleGrading (1 1 1));
edges ();
boundary
(
    lid {{ type wall; faces ((3 7 6 2)); }}
    walls {{ type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0)); }}
    frontAndBack {{ type empty; faces ((0 3 2 1) (4 5 6 7)); }}
);
mergePatchPairs ();
"""

CONTROL = """
application icoFoam;
startFrom startTime;
startTime 0;
stopAt endTime;
endTime {end};
deltaT {step};
writeControl timeStep;
writeInterval {every};
purgeWrite 2;
writeFormat ascii;
writePrecision 8;
timeFormat general;
timePrecision 8;
runTimeModifiable false;
"""

SCHEMES = """
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
"""

SOLUTION = """
solvers
{
    p { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0.05; }
    pFinal { $p; relTol 0; }
    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-6; relTol 0; }
}
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
"""

VELOCITY = """
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
    lid { type fixedValue; value uniform (1 0 0); }
    walls { type noSlip; }
    frontAndBack { type empty; }
}
"""

PRESSURE = """
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField
{
    lid { type zeroGradient; }
    walls { type zeroGradient; }
    frontAndBack { type empty; }
}
"""

TRANSPORT = """
nu [0 2 -1 0 0 0 0] {viscosity};
"""


def write(folder, name, kind, text):
    path = os.path.join(CASE, folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(HEADER.format(kind=kind, name=name) + text)


def write_case():
    """Writes the case. Lid speed and side are 1, so the viscosity is 1 / Reynolds."""
    steps = max(10, math.ceil(END_TIME * CELLS / COURANT / 10) * 10)
    write("system", "blockMeshDict", "dictionary", MESH.format(cells=CELLS))
    control = CONTROL.format(end=END_TIME, step=repr(END_TIME / steps), every=steps // 10)
    write("system", "controlDict", "dictionary", control)
    write("system", "fvSchemes", "dictionary", SCHEMES)
    write("system", "fvSolution", "dictionary", SOLUTION)
    write("constant", "transportProperties", "dictionary", TRANSPORT.format(viscosity=repr(1 / REYNOLDS)))
    write("0", "U", "volVectorField", VELOCITY)
    write("0", "p", "volScalarField", PRESSURE)
    return steps


def run(program):
    log = f"log.{program}"
    with open(log, "w", encoding="utf-8") as output:
        code = subprocess.call([program, "-case", CASE], stdout=output, stderr=subprocess.STDOUT)
    with open(log, encoding="utf-8", errors="replace") as output:
        text = output.read()
    if code != 0:
        sys.exit(f"{program} ended with {code}\n{text[-2000:]}")
    return text


def velocities(time_name):
    """Returns the velocities of all cells, row by row from the bottom."""
    with open(os.path.join(CASE, time_name, "U"), encoding="ascii") as file:
        text = file.read()
    field = re.search(r"internalField\s+nonuniform List<vector>\s+(\d+)\s*\((.*?)\n\)", text, re.DOTALL)
    if field is None:
        sys.exit("the flow has not changed since the start")
    rows = re.findall(r"\(([^()]+)\)", field[2])
    return [tuple(float(number) for number in row.split()) for row in rows]


def written_times():
    names = [name for name in os.listdir(CASE) if re.fullmatch(r"[0-9.e+-]+", name) and name != "0"]
    return sorted(names, key=float)


def main():
    began = time.perf_counter()
    steps = write_case()
    run("blockMesh")
    log = run("icoFoam")
    before, last = (velocities(name) for name in written_times()[-2:])
    middle = [last[row * CELLS + CELLS // 2][0] for row in range(CELLS)]
    change = max(math.dist(one, other) for one, other in zip(before, last, strict=True))
    continuity = re.findall(r"continuity errors : sum local = ([0-9.e+-]+)", log)
    result = {
        "reynolds": REYNOLDS,
        "cells": CELLS,
        "end_time": END_TIME,
        "steps": steps,
        "lowest_u": min(middle),
        "lowest_u_at_y": (middle.index(min(middle)) + 0.5) / CELLS,
        "last_change": change,
        "continuity_error": float(continuity[-1]),
        "is_steady": change < STEADY,
        "seconds": round(time.perf_counter() - began, 3),
    }
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    print(
        f"reynolds={REYNOLDS:g} cells={CELLS} steps={steps} lowest_u={result['lowest_u']:.4f} "
        f"at y={result['lowest_u_at_y']:.3f} last_change={change:.1e}"
    )
    # The lid drags the upper half along; the return flow below it is the eddy.
    has_eddy = -0.6 < result["lowest_u"] < -0.05
    return 0 if has_eddy and result["continuity_error"] < 1e-4 and result["is_steady"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
