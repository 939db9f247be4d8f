"""`joblens list-tools` as it is shown."""

from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost
from joblens.model.tool import ParameterWay, Tool, ToolParameter, ToolScript, ToolStanding
from joblens.views.setup.tools import render_tool, render_tools, tool_form
from tests.golden.golden import same_as_golden

SOLVER = Tool(
    name="solver",
    description="Solves things; parameters become variables such as SOLVE_STEPS",
    source="/home/ada/project/.joblens/tools/solver.yaml",
    command=("{program}", "-in", "{script}"),
    programs=("solver", "solver_mpi"),
    suffixes=(".in",),
    parameters=ParameterWay.ENVIRONMENT,
    parameter_prefix="SOLVE_",
    env={"THREADS": "2"},
    container=ContainerJob(image="solver:1"),
    artifacts=("*.out",),
    requirements=Requirements(cpus=2, memory_bytes=2**30, timeout_s=3600),
    retry_lost=RetryLost.NEVER,
    scripts={
        "small.in": ToolScript(
            path="/x",
            description="A small one",
            parameters={
                "steps": ToolParameter(default=100, least=1, most=1000, description="How many"),
                "method": ToolParameter(default="euler", choices=("euler", "heun")),
                "times": ToolParameter(default=[0.5, 1.0], description="When to write"),
                "fast": ToolParameter(default=False),
            },
        )
    },
)
STANDINGS = [
    ToolStanding(name="plain", tool=Tool(name="plain", command=("x",), description="A plain one")),
    ToolStanding(
        name="solver",
        tool=SOLVER,
        problem="there is no program solver or solver_mpi",
        advice="apt install solver",
    ),
    ToolStanding(
        name="wrong",
        problem="/t/wrong.yaml:1:1: unknown key 'a'\n/t/wrong.yaml:2:1: the tool has no 'command'",
    ),
]


def test_all_tools() -> None:
    same_as_golden("list-tools", render_tools(STANDINGS, width=80))


def test_one_tool() -> None:
    same_as_golden("list-tools-one", render_tool(STANDINGS[1], width=80))


def test_json_has_every_key_whether_it_was_written_or_not() -> None:
    plain, solver, wrong = map(tool_form, STANDINGS)
    assert set(plain) == set(solver)
    assert (plain["usable"], plain["problem"], plain["parameters"]) == (True, None, "environment")
    assert (solver["usable"], solver["advice"], solver["retry_lost"]) == (
        False,
        "apt install solver",
        "never",
    )
    assert solver["scripts"]["small.in"]["parameters"]["steps"]["most"] == 1000
    assert (wrong["usable"], wrong["name"]) == (False, "wrong")
