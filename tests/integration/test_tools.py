"""Real tools run their own scripts: parameters reach them, results are what physics says, and every run is
measured."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from joblens.app.jobs.api import SequentialRunner
from joblens.app.jobs.preparation import prepare
from joblens.app.queue.tool_requests import missing_for, placed, request_of
from joblens.app.queue.tools import find_tool, tool_request
from joblens.app.wiring.settings import load_settings
from joblens.model.jobs.job import ContainerJob, Record, Requirements
from tests.conftest import RunJoblens
from tests.integration.engines import Engine
from tests.integration.tool_images import IMAGE, VOLUMES, host_container


class Ran(Struct, frozen=True):
    record: Record
    stdout: str
    folder: Path

    @property
    def status(self) -> str:
        assert self.record.outcome is not None
        return self.record.outcome.status.value

    @property
    def result(self) -> Any:
        return json.loads((self.folder / "result.json").read_text())


RunTool = Callable[..., Ran]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FEniCSx compiles what it solves, and keeps it."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def run_tool(
    store_path: Path, tmp_path: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunTool]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled))
    settings = load_settings().settings
    numbers = iter(range(100))
    with SequentialRunner(settings) as jobs:

        def run(
            name: str,
            script: str,
            params: dict[str, Any] | None = None,
            container: ContainerJob | None = None,
            requirements: Requirements | None = None,
        ) -> Ran:
            tool = find_tool(name)
            missing = missing_for(tool)
            if missing:
                pytest.skip(f"{name}: {missing} ({tool.install})")
            folder = tmp_path / f"job-{next(numbers)}"
            folder.mkdir()
            planned = tool_request(tool, script, params, container=container, requirements=requirements)
            result = jobs.run(prepare(request_of(placed(planned, str(folder))), settings))
            return Ran(result.record, result.stdout, folder)

        yield run


@pytest.mark.parametrize("name", ["fenicsx", "lammps", "openfoam", "mpi"])
def test_what_a_tool_says_of_its_scripts_defaults_is_what_the_script_does(
    run_tool: RunTool, name: str
) -> None:
    tool = find_tool(name)
    ran = run_tool(name, tool.benchmark)
    assert ran.status == "success"
    defaults = {key: each.default for key, each in tool.scripts[tool.benchmark].parameters.items()}
    found = {key: value for key, value in ran.result.items() if key in defaults and key != "temperature"}
    assert found
    assert found.items() <= defaults.items()


def test_the_error_of_poisson_falls_with_the_square_of_the_mesh_size(run_tool: RunTool) -> None:
    coarse = run_tool("fenicsx", "poisson.py", {"mesh_size": 8})
    fine = run_tool("fenicsx", "poisson.py", {"mesh_size": 16})
    better = run_tool("fenicsx", "poisson.py", {"mesh_size": 16, "degree": 2})
    assert (coarse.status, fine.status, better.status) == ("success", "success", "success")
    assert fine.result["unknowns"] == 17 * 17
    assert coarse.result["l2_error"] / fine.result["l2_error"] == pytest.approx(4, rel=0.05)
    assert better.result["l2_error"] < fine.result["l2_error"] / 20
    assert (fine.folder / "solution.xdmf").stat().st_size > 0


def test_a_run_of_a_tool_is_measured_and_remembered_with_its_parameters(run_tool: RunTool) -> None:
    ran = run_tool("fenicsx", "poisson.py", {"mesh_size": 16})
    job, outcome = ran.record.job, ran.record.outcome
    assert outcome is not None
    assert (job.tool, job.script, job.params) == ("fenicsx", "poisson.py", {"mesh_size": 16})
    assert job.env["SIM_MESH_SIZE"] == "16"
    assert outcome.usage.cpu_total_usec is not None
    assert outcome.usage.cpu_total_usec > 50_000  # importing it takes more
    assert "mesh_size=16" in ran.stdout


def test_a_mesh_that_cannot_carry_the_solution_is_a_failure(run_tool: RunTool) -> None:
    ran = run_tool("fenicsx", "poisson.py", {"mesh_size": 1})
    assert ran.status == "failed"
    assert ran.result["l2_error"] == pytest.approx(0.5, abs=0.01)


def test_a_melt_has_the_atoms_it_was_reported_and_keeps_its_energy(run_tool: RunTool) -> None:
    small = run_tool("lammps", "example.lammps", {"cells": 4, "steps": 200})
    hot = run_tool("lammps", "example.lammps", {"cells": 5, "steps": 200, "temperature": 5.0})
    assert (small.status, hot.status) == ("success", "success")
    assert (small.result["atoms"], small.result["steps"]) == (4 * 4**3, 200)
    assert hot.result["atoms"] == 4 * 5**3
    # Half of the motion goes into the lattice that breaks up.
    assert 1.2 < small.result["temperature"] < 2.2
    assert hot.result["temperature"] > small.result["temperature"] + 0.5
    assert max(small.result["drift"], hot.result["drift"]) < 0.05
    assert (small.folder / "log.lammps").exists()


def test_a_melt_depends_on_its_seed_and_on_nothing_else(run_tool: RunTool) -> None:
    params = {"cells": 3, "steps": 100}
    first, again, other = (
        run_tool("lammps", "example.lammps", {**params, "seed": seed}) for seed in (1, 1, 2)
    )
    assert first.result == again.result
    assert other.result["temperature"] != first.result["temperature"]


def test_the_eddy_of_a_cavity_is_that_of_the_literature(run_tool: RunTool) -> None:
    slow = run_tool("openfoam", "example_cavity.py", {"reynolds": 100, "cells": 32, "end_time": 15})
    fast = run_tool("openfoam", "example_cavity.py", {"reynolds": 400, "cells": 32, "end_time": 40})
    assert (slow.status, fast.status) == ("success", "success")
    # Ghia, Ghia and Shin (1982): the lowest velocity on the middle line is -0.2109 and -0.3273.
    assert slow.result["lowest_u"] == pytest.approx(-0.2109, abs=0.01)
    assert fast.result["lowest_u"] == pytest.approx(-0.3273, abs=0.03)
    assert fast.result["lowest_u_at_y"] < slow.result["lowest_u_at_y"]


def test_a_cavity_that_had_no_time_to_become_steady_is_a_failure(run_tool: RunTool) -> None:
    ran = run_tool("openfoam", "example_cavity.py", {"end_time": 1})
    assert ran.status == "failed"
    assert ran.result["is_steady"] is False


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_mpi_job_has_as_many_ranks_as_it_has_cpus(run_tool: RunTool, ranks: int) -> None:
    ran = run_tool("mpi", "pi.py", {"intervals": 100_000}, requirements=Requirements(cpus=ranks))
    assert ran.status == "success"
    assert (ran.result["ranks"], ran.result["intervals"]) == (ranks, 100_000)
    assert ran.record.job.requirements.cpus == ranks


def test_parameters_reach_a_script_in_a_container(run_tool: RunTool, docker: Engine) -> None:
    inside = host_container(docker)
    ran = run_tool("lammps", "example.lammps", {"cells": 3, "steps": 50}, inside)
    assert ran.status == "success", ran.record.outcome
    assert ran.result["atoms"] == 4 * 3**3
    outside = run_tool("lammps", "example.lammps", {"cells": 3, "steps": 50})
    assert ran.result == outside.result
    assert ran.record.job.container is not None
    assert ran.record.job.container.image == IMAGE
    assert docker.containers_of(ran.record.job.uuid) == []


def test_variables_reach_a_script_in_a_container_too(run_tool: RunTool, docker: Engine) -> None:
    ran = run_tool("openfoam", "example_cavity.py", {"cells": 10, "end_time": 8}, host_container(docker))
    assert ran.status == "success", ran.record.outcome
    assert ran.result["cells"] == 10


def test_a_tools_file_can_say_that_it_runs_in_a_container(
    run_tool: RunTool, docker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_container(docker)
    folder = tmp_path / "project" / ".joblens" / "tools"
    folder.mkdir(parents=True)
    volumes = ", ".join(VOLUMES)
    (folder / "counted.yaml").write_text(
        'command: ["{program}", "{script}", "{params...}"]\nprograms: [python3]\nparameters: json_file\n'
        f"container: {{image: '{IMAGE}', volumes: [{volumes}], network: none}}\nartifacts: [out.txt]\n"
    )
    script = tmp_path / "project" / "count.py"
    script.write_text(
        "import json, os, sys\n"
        "given = json.load(open(sys.argv[1]))\n"
        "open('out.txt', 'w').write(f'{sum(given[\"numbers\"])} {os.getcwd()}')\n"
    )
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    ran = run_tool("counted", "count.py", {"numbers": [1, 2, 39]})
    assert ran.status == "success", ran.record.outcome
    assert (ran.folder / "out.txt").read_text() == "42 /joblens"


def listed_names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "]


def test_tools_are_listed_with_what_they_take(joblens: RunJoblens, tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".joblens" / "tools"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("command: [x]\nprograms: [no-such-program]\ninstall: build it\n")
    (folder / "bad.yaml").write_text("command: x\n")
    listed = joblens("list-tools", cwd=tmp_path / "project", code=0).stdout
    for name in ("bash", "fenicsx", "lammps", "mine", "mpi", "openfoam", "python"):
        assert name in listed_names(listed)
    assert "✗ there is no program no-such-program\n" in listed
    assert "command must be a list of words" in " ".join(listed.split())
    one = joblens("--json", "list-tools", "mine", cwd=tmp_path / "project", code=0).json
    assert (one["usable"], one["advice"], one["source"]) == (False, "build it", f"{folder}/mine.yaml")
    names = [each["name"] for each in joblens("--json", "list-tools", code=0).json]
    assert names == ["bash", "fenicsx", "lammps", "mpi", "openfoam", "python"]


def test_an_unknown_tool_and_one_with_mistakes_end_with_2(joblens: RunJoblens, tmp_path: Path) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "joblens" / "tools"
    folder.mkdir(parents=True)
    (folder / "bad.yaml").write_text("command: x\n")
    refused = joblens("list-tools", "lamps", code=2)
    assert "no tool 'lamps'; did you mean 'lammps'?" in refused.stderr
    broken = joblens("list-tools", "bad", code=2)
    assert f"{folder}/bad.yaml:1:1: command must be a list of words" in broken.stderr
    assert "Traceback" not in refused.stderr + broken.stderr
