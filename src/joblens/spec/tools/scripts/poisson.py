"""Poisson's equation on the unit square, solved with FEniCSx and compared with the exact solution.

-div(grad u) = f with u = sin(pi x) sin(pi y), which is 0 on the boundary, so the error is known exactly. It
falls with the mesh size h as h**(degree + 1). Parameters are environment variables: SIM_MESH_SIZE,
SIM_DEGREE. Writes result.json and, for ParaView, solution.xdmf.
"""

import inspect
import json
import math
import os
import time

import numpy
import ufl
from dolfinx import fem, io, mesh
from mpi4py import MPI
from petsc4py import PETSc

MESH_SIZE = int(os.environ.get("SIM_MESH_SIZE", "32"))
DEGREE = int(os.environ.get("SIM_DEGREE", "1"))


def function_space(domain, degree):
    """The name differs between releases of DOLFINx."""
    make = getattr(fem, "functionspace", None) or fem.FunctionSpace
    return make(domain, ("Lagrange", degree))


def linear_problem(form, right_side, conditions):
    from dolfinx.fem.petsc import LinearProblem

    options = {"ksp_type": "cg", "pc_type": "jacobi", "ksp_rtol": 1e-10, "ksp_max_it": 20000}
    more = {}
    if "petsc_options_prefix" in inspect.signature(LinearProblem.__init__).parameters:
        more["petsc_options_prefix"] = "poisson_"
    return LinearProblem(form, right_side, bcs=conditions, petsc_options=options, **more)


def main():
    began = time.perf_counter()
    domain = mesh.create_unit_square(MPI.COMM_WORLD, MESH_SIZE, MESH_SIZE)
    space = function_space(domain, DEGREE)
    edge = domain.topology.dim - 1
    domain.topology.create_connectivity(edge, domain.topology.dim)
    on_boundary = mesh.locate_entities_boundary(domain, edge, lambda x: numpy.full(x.shape[1], True))
    boundary = fem.dirichletbc(
        PETSc.ScalarType(0), fem.locate_dofs_topological(space, edge, on_boundary), space
    )
    x = ufl.SpatialCoordinate(domain)
    exact = ufl.sin(math.pi * x[0]) * ufl.sin(math.pi * x[1])
    trial, test = ufl.TrialFunction(space), ufl.TestFunction(space)
    form = ufl.inner(ufl.grad(trial), ufl.grad(test)) * ufl.dx
    right_side = ufl.inner(2 * math.pi**2 * exact, test) * ufl.dx
    solution = linear_problem(form, right_side, [boundary]).solve()

    squared = fem.assemble_scalar(fem.form(ufl.inner(solution - exact, solution - exact) * ufl.dx))
    error = math.sqrt(domain.comm.allreduce(squared.real, op=MPI.SUM))
    unknowns = space.dofmap.index_map.size_global
    result = {
        "mesh_size": MESH_SIZE,
        "degree": DEGREE,
        "cells": domain.topology.index_map(domain.topology.dim).size_global,
        "unknowns": unknowns,
        "l2_error": error,
        "seconds": round(time.perf_counter() - began, 3),
    }
    write(domain, solution, result)
    print(f"mesh_size={MESH_SIZE} degree={DEGREE} unknowns={unknowns} l2_error={error:.6e}")
    # A solution must be better than zero, whose error is 1/2.
    return 0 if math.isfinite(error) and error < 0.25 else 1


def write(domain, solution, result):
    points = fem.Function(function_space(domain, 1), name="u")
    points.interpolate(solution)
    with io.XDMFFile(domain.comm, "solution.xdmf", "w") as file:
        file.write_mesh(domain)
        file.write_function(points)
    if domain.comm.rank == 0:
        with open("result.json", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    raise SystemExit(main())
