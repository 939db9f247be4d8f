"""Tools' files: what they become, and what is said of mistakes, each with its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost
from joblens.model.tool import ParameterWay, ToolDevice, ToolParameter, ToolScript
from joblens.spec.keys.tool import TOOL_SECTIONS
from joblens.spec.tools.file import read_tool

WHOLE = """
name: melt
description: It melts
command: ["{program}", -in, "{script}", "{device...}", "{params...}"]
programs: [lmp, lmp_mpi]
check: [-h]
needs: bash
interpreters: {.py: [python3, -u]}
suffixes: [.in]
parameters: arguments
parameter_form: [-var, "{name}", "{value}"]
env: {OMP_NUM_THREADS: 2}
container: {image: "melt:1", volumes: "/data:/data:ro", pull: true}
artifacts: ["*.dump"]
requirements: {cpus: 2, memory: 1g, timeout: 1h}
own_folder: false
retry_lost: never
benchmark: small.in
scripts:
  small.in:
    path: inputs/small.in
    description: A small one
    parameters:
      steps: {default: 10, least: 1, description: How many}
devices:
  gpu: {arguments: [-sf, gpu], env: {A: b}, params: {steps: 5}}
install: apt install melt
"""


def test_every_key_becomes_what_it_says() -> None:
    reading = read_tool(WHOLE, "/tools/other.yaml", source="/tools/other.yaml")
    assert reading.problems == ()
    tool = reading.tool
    assert tool is not None
    assert (tool.name, tool.source, tool.description) == ("melt", "/tools/other.yaml", "It melts")
    assert tool.command == ("{program}", "-in", "{script}", "{device...}", "{params...}")
    assert (tool.programs, tool.check, tool.needs) == (("lmp", "lmp_mpi"), ("-h",), ("bash",))
    assert tool.interpreters == {".py": ("python3", "-u")}
    assert tool.parameters is ParameterWay.ARGUMENTS
    assert tool.parameter_form == ("-var", "{name}", "{value}")
    assert tool.env == {"OMP_NUM_THREADS": "2"}
    assert tool.container == ContainerJob(image="melt:1", volumes=("/data:/data:ro",), pull=True)
    assert tool.requirements == Requirements(cpus=2, memory_bytes=2**30, timeout_s=3600)
    assert (tool.own_folder, tool.retry_lost) == (False, RetryLost.NEVER)
    steps = ToolParameter(default=10, least=1, description="How many")
    assert tool.scripts == {
        "small.in": ToolScript(
            path="/tools/inputs/small.in", description="A small one", parameters={"steps": steps}
        )
    }
    assert tool.devices == {"gpu": ToolDevice(arguments=("-sf", "gpu"), env={"A": "b"}, params={"steps": 5})}


def test_paths_start_from_the_folder_of_the_file() -> None:
    text = (
        'command: ["{program}"]\nprograms: [./bin/solver, solver, /opt/solver]\n'
        "container: {image: i, volumes: ['./data:/data', 'kept:/kept', '/a:/b:ro']}\n"
        "scripts: {s.inp: {}, t.inp: {path: ../t.inp}}\n"
    )
    tool = read_tool(text, "/tools/mine.yaml").tool
    assert tool is not None
    assert tool.container is not None
    assert tool.programs == ("/tools/bin/solver", "solver", "/opt/solver")
    assert tool.container.volumes == ("/tools/data:/data", "kept:/kept", "/a:/b:ro")
    assert [script.path for script in tool.scripts.values()] == ["/tools/s.inp", "/t.inp"]


def test_a_tool_is_called_by_its_file_unless_it_says_otherwise() -> None:
    tool = read_tool('command: [run, "{script}"]', "/tools/mine.yaml").tool
    assert tool is not None
    assert tool.name == "mine"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1:1: the file is empty; a tool has at least a command"),
        ("[1, 2]", "1:1: the file must be a mapping, not a list"),
        ("programs: [a]", "1:1: the tool has no 'command'"),
        ("command: a {script}", "1:1: command must be a list of words, not 'a {script}'; write [a {script}]"),
        ("command: []", "1:1: command is empty"),
        ("command: [a]\ncomand: b", "2:1: unknown key 'comand'; did you mean 'command'?"),
        (
            'command: [a, "{scrip}"]',
            "1:14: command: {scrip} is unknown; did you mean {script}?",
        ),
        (
            'command: [a, "x={params...}"]',
            (
                "1:14: command: {params...} expands to several words, "
                "so it must be a word by itself, not part of "
                "'x={params...}'"
            ),
        ),
        ('command: ["{program}"]', "1:1: command has {program}, but programs is missing"),
        (
            "command: [a]\nparameters: arguments",
            "2:1: parameters: arguments needs {params...} in the command",
        ),
        (
            'command: [a, "{params...}"]\nparameters: json_file\nown_folder: false',
            "3:1: own_folder: false cannot be combined with json_file: jobs would share one file",
        ),
        (
            'command: [a, "{params...}"]\nparameters: arguments\nparameter_form: ["--{name}"]',
            "3:1: parameter_form has no {value}",
        ),
        (
            "command: [a]\nparameters: argument",
            (
                "2:1: parameters must be environment, arguments, json_file or none, not 'argument'; did you "
                "mean 'arguments'?"
            ),
        ),
        (
            "command: [a]\ndevices:\n  tpu: {}",
            "3:3: devices: unknown device 'tpu'; expected cpu, gpu or intel-gpu",
        ),
        ("command: [a]\nbenchmark: b.py", "2:1: benchmark: the tool has no script 'b.py'"),
        (
            "command: [a]\nscripts:\n  x.py:\n    parameters:\n      n: {default: 0, least: 1}",
            "5:7: parameter 'n' of x.py: its default is below 1",
        ),
        (
            "command: [a]\nscripts:\n  x.py:\n    parameters:\n      n: {default: a, least: 1}",
            "5:7: parameter 'n' of x.py: least and most are only for numbers",
        ),
        (
            "command: [a]\nscripts:\n  x.py:\n    parameters:\n      n: {default: {a: 1}}",
            (
                "5:7: parameter 'n' of x.py: default must be text, a number, true, false or a list of them, "
                "not a mapping"
            ),
        ),
        ("command: [a]\nrequirements: {cpus: 0}", "2:16: cpus in requirements must be more than 0, not 0"),
        ("command: [a]\ncontainer: {engine: docker}", "2:1: container has no 'image'"),
        (
            "command: [a]\nname: a b",
            "2:1: name: 'a b' must be letters, digits, '.', '_' and '-', starting with a letter or digit",
        ),
        (
            "command: [a]\ncheck: [-h]",
            "2:1: check needs programs",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, problem: str) -> None:
    reading = read_tool(text, "/tools/t.yaml")
    assert reading.tool is None
    assert [f"{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems] == [problem]


def test_all_mistakes_are_reported_at_once() -> None:
    reading = read_tool("comand: [a]\nparameters: x\nartifacts: {a: b}", "/tools/t.yaml")
    assert len(reading.problems) == 3


def problems_of(text: str) -> list[str]:
    return [one.message for one in read_tool(text, "/tools/t.yaml").problems]


def test_mistakes_between_keys_are_reported_beside_those_of_single_keys() -> None:
    text = (
        'command: ["{program}", "{scrip}"]\nprograms: [a]\nparameters: arguments\nfoo: 1\n'
        "requirements: {cpus: lots}\n"
    )
    first, second, third, fourth = problems_of(text)
    assert first == "command: {scrip} is unknown; did you mean {script}?"
    assert second == "parameters: arguments needs {params...} in the command"
    assert third.startswith("unknown key 'foo'")
    assert fourth.startswith("cpus in requirements must be")


@pytest.mark.parametrize(
    "text",
    [
        'command: ["{program}"]\nprogams: [a]',
        'command: ["{program}"]\nprograms: {a: b}',
        "comand: [a]\nparameters: arguments",
        "command: {a: b}\nparameters: arguments",
        "command: [a]\nbenchmark: x.py\nscripts: [x.py]",
        "command: [a]\nbenchmark: x.py\nscript: {x.py: {}}",
        "command: [a]\ncheck: [-h]\nprogram: a",
    ],
)
def test_nothing_is_missed_that_was_only_written_wrongly(text: str) -> None:
    assert len(problems_of(text)) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("{script}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(TOOL_SECTIONS["tool"].keys)), VALUES, max_size=6))
def test_whatever_a_file_says_is_a_tool_or_is_reported(values: dict[str, Any]) -> None:
    reading = read_tool(json.dumps({"command": ["a"], **values}), "/tools/t.yaml")
    assert (reading.tool is None) == bool(reading.problems)


@given(st.text(max_size=60))
def test_whatever_stands_in_a_file_is_a_tool_or_is_reported(text: str) -> None:
    reading = read_tool(text, "/tools/t.yaml")
    assert (reading.tool is None) == bool(reading.problems)


@given(st.sampled_from(["container", "requirements", "scripts", "devices"]), VALUES)
def test_whatever_stands_in_a_section_is_reported_too(key: str, value: Any) -> None:
    parameter = {"default": value, "least": value, "choices": value}
    nested = ({"parameters": {"y": value}}, {"parameters": {"y": parameter}})
    for inner in (value, {"x": value}, *({"x": each} for each in nested)):
        reading = read_tool(json.dumps({"command": ["a"], key: inner}), "/tools/t.yaml")
        assert (reading.tool is None) == bool(reading.problems)
