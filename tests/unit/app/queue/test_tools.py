"""Which tools there are, and what one is to run."""

import os
from pathlib import Path

import pytest

from joblens.app.queue.tool_requests import missing_for, placed, request_of
from joblens.app.queue.tools import find_tool, list_tools, load_tools, tool_request
from joblens.model.delivery import SoughtProgram, ToolPrograms
from joblens.model.errors import InputError, ToolError, UnknownTool
from joblens.model.jobs.job import ContainerJob, Requirements

BUILT_IN = ["bash", "fenicsx", "lammps", "mpi", "openfoam", "python"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".joblens" / "tools").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "deep" / "er").mkdir(parents=True)
    return folder


@pytest.fixture
def users(own_environment: dict[str, str], tmp_path: Path) -> Path:
    folder = Path(own_environment["XDG_CONFIG_HOME"]) / "joblens" / "tools"
    assert folder.is_relative_to(tmp_path)
    folder.mkdir(parents=True)
    return folder


def write_tool(folder: Path, name: str, text: str = 'command: [echo, "{script}"]\n') -> None:
    (folder / f"{name}.yaml").write_text(text)


def test_built_in_tools_are_there_and_their_scripts_lie_where_they_say(tmp_path: Path) -> None:
    tools = load_tools(str(tmp_path))
    assert list(tools) == BUILT_IN
    paths = [script.path for tool in tools.values() for script in tool.scripts.values()]
    assert len(paths) == 5
    assert all(os.path.isfile(path) for path in paths)
    assert all(tool.install for tool in tools.values())


def test_a_projects_tool_goes_before_the_users_and_that_before_a_built_in_one(
    project: Path, users: Path
) -> None:
    write_tool(users, "python", "command: [users]\n")
    write_tool(users, "mine", "command: [users]\n")
    write_tool(project / ".joblens" / "tools", "mine", "command: [projects]\n")
    tools = load_tools(str(project / "deep" / "er"))
    assert (tools["python"].command, tools["mine"].command) == (("users",), ("projects",))
    assert tools["mine"].source == str(project / ".joblens" / "tools" / "mine.yaml")
    assert load_tools(str(users))["mine"].command == ("users",)


def test_what_lies_above_a_repository_is_none_of_its_business(project: Path, tmp_path: Path) -> None:
    (project / ".joblens" / "tools").rmdir()
    above = tmp_path / ".joblens" / "tools"
    above.mkdir(parents=True)
    write_tool(above, "mine")
    assert "mine" not in load_tools(str(project / "deep"))
    assert "mine" in load_tools(str(tmp_path))


def test_a_folder_that_everybody_may_write_to_is_not_used(project: Path) -> None:
    folder = project / ".joblens" / "tools"
    write_tool(folder, "python", "command: [evil]\n")
    folder.chmod(0o777)
    assert load_tools(str(project))["python"].command != ("evil",)
    (result,) = list_tools(str(project))[1]
    assert result.startswith(f"{folder} is not used: {folder} is writable by all users; copy what")
    with pytest.raises(UnknownTool) as raised:
        find_tool("solver", str(project))
    assert raised.value.hint == result


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
def test_a_folder_of_someone_else_is_not_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / ".joblens" / "tools"
    write_tool(folder, "mine")
    assert "mine" in load_tools(str(project))
    os.chown(folder, 12345, 12345)
    assert "mine" not in load_tools(str(project))
    (result,) = list_tools(str(project))[1]
    assert result.startswith(f"{folder} is not used: {folder} belongs to another user (12345); copy ")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_file_of_another_user_is_not_used_wherever_it_is(project: Path, users: Path) -> None:
    for folder, name in ((project / ".joblens" / "tools", "mine"), (users, "yours")):
        write_tool(folder, name)
        os.chown(folder / f"{name}.yaml", 12345, 12345)
    tools, (first, second) = load_tools(str(project)), list_tools(str(project))[1]
    assert {"mine", "yours"}.isdisjoint(tools)
    assert "yours.yaml belongs to another user (12345)" in first
    assert "mine.yaml belongs to another user (12345)" in second


def test_a_file_with_mistakes_breaks_its_own_tool_only(users: Path) -> None:
    write_tool(users, "lammps", "comand: [x]\n")
    assert [name for name in BUILT_IN if name != "lammps"] == [
        name for name in load_tools() if name != "lammps"
    ]
    with pytest.raises(ToolError) as raised:
        find_tool("lammps")
    first = str(raised.value).splitlines()[0]
    assert first == f"{users}/lammps.yaml:1:1: unknown key 'comand'; did you mean 'command'?"
    (standing,) = [one for one in list_tools()[0] if one.name == "lammps"]
    assert standing.tool is None
    assert standing.problem == str(raised.value)


def test_a_changed_file_is_read_again(users: Path) -> None:
    write_tool(users, "mine", "command: [one]\n")
    assert find_tool("mine").command == ("one",)
    write_tool(users, "mine", "command: [another]\n")
    assert find_tool("mine").command == ("another",)


def test_an_unknown_tool_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownTool, match="no tool 'lamps'; did you mean 'lammps'"):
        find_tool("lamps")


def test_a_script_of_ones_own_runs_where_it_was_submitted(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    run = tool_request("python", "a.py", {"steps": 5}, cwd=str(tmp_path))
    assert run.argv[1:] == (str(tmp_path / "a.py"), "--steps", "5")
    assert (run.cwd, run.files, run.script) == (str(tmp_path), {}, "a.py")
    assert os.path.isabs(run.argv[0])


def test_a_device_has_to_be_here_when_the_job_is_for_this_machine(
    users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tool(users, "mine", 'command: [echo, "{device...}"]\ndevices: {gpu: {arguments: [--gpu]}}\n')
    (tmp_path / "s").touch()
    monkeypatch.setattr("joblens.app.wiring.machine.usable_gpus", lambda: ())
    with pytest.raises(ToolError, match="'gpu': there is no usable NVIDIA GPU, but mine runs"):
        tool_request("mine", "s", device="gpu", cwd=str(tmp_path))
    assert tool_request("mine", "s", device="gpu", cwd=str(tmp_path), here=False).argv[-1] == "--gpu"
    monkeypatch.setattr("joblens.app.wiring.machine.usable_gpus", lambda: ("0",))
    assert tool_request("mine", "s", device="gpu", cwd=str(tmp_path)).argv[-1] == "--gpu"


def test_elsewhere_the_program_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.sh").touch()
    assert tool_request("bash", "a.sh", cwd=str(tmp_path), here=False).argv[0] == "bash"


def test_elsewhere_the_worker_is_reported_which_words_of_the_command_it_has_to_find(
    users: Path, tmp_path: Path
) -> None:
    write_tool(
        users,
        "mine",
        'command: [env, "--run={program}:", "{script}", "{params...}"]\nprograms: [first, second]\n'
        "check: [--check]\nneeds: [other]\nparameters: arguments\ninstall: get it\n",
    )
    (tmp_path / "s").touch()
    run = tool_request("mine", "s", {"x": "{program}", "y": "first"}, cwd=str(tmp_path), here=False)
    assert run.argv == ("env", "--run=first:", f"{tmp_path}/s", "--x", "{program}", "--y", "first")
    sought = SoughtProgram(index=1, around=("--run=", ":"), names=("first", "second"), check=("--check",))
    assert run.programs == ToolPrograms(
        tool="mine", sought=(sought,), needs=("env", "other"), install="get it"
    )


def test_elsewhere_a_script_of_the_tool_may_need_a_certain_interpreter() -> None:
    run = tool_request("mpi", "pi.py", here=False)
    assert run.programs is not None
    assert [(run.argv[one.index], one.names) for one in run.programs.sought] == [
        ("mpirun", ("mpirun", "mpiexec")),
        ("python3", ("python3",)),
    ]


def test_nothing_is_looked_for_by_the_worker_where_the_job_runs_here_or_in_a_container(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.sh").touch()
    assert tool_request("bash", "a.sh", cwd=str(tmp_path)).programs is None
    assert tool_request("bash", "a.sh", cwd=str(tmp_path), container="img", here=False).programs is None


@pytest.mark.parametrize(
    ("word", "missing"),
    [
        ("no-such-program", "there is no program no-such-program"),
        ("/no/such/program", "there is no program /no/such/program"),
        ("./beside-the-job", ""),
        ("sh", ""),
    ],
)
def test_a_command_that_begins_with_a_program_needs_it(users: Path, word: str, missing: str) -> None:
    write_tool(users, "mine", f'command: [{word}, "{{script}}"]\n')
    assert missing_for(find_tool("mine")) == missing


def test_a_tools_own_script_travels_with_the_job(users: Path, tmp_path: Path) -> None:
    (users / "s.sh").write_text("echo $SIM_N\n")
    write_tool(
        users,
        "mine",
        'command: ["{program}", "{script}"]\nprograms: [sh]\n'
        "scripts: {s.sh: {parameters: {n: {default: 1}}}}\n",
    )
    run = tool_request("mine", "s.sh", {"n": 3}, cwd=str(tmp_path))
    assert (run.argv[1:], run.files, run.cwd) == (("s.sh",), {"s.sh": "echo $SIM_N\n"}, "")
    folder = tmp_path / "job"
    folder.mkdir()
    request = request_of(placed(run, str(folder)))
    assert (folder / "s.sh").read_text() == "echo $SIM_N\n"
    assert (request.cwd, request.env, request.params) == (str(folder), {"SIM_N": "3"}, {"n": 3})
    assert (request.tool, request.script) == ("mine", "s.sh")
    with pytest.raises(ToolError, match="no parameter 'm'"):
        tool_request("mine", "s.sh", {"m": 3}, cwd=str(tmp_path))


def test_a_file_that_is_there_goes_before_a_tools_own_script(tmp_path: Path) -> None:
    (tmp_path / "primes.py").touch()
    run = tool_request("python", "primes.py", {"anything": 1}, cwd=str(tmp_path))
    assert run.argv[1] == str(tmp_path / "primes.py")


def test_in_a_container_the_folder_and_the_script_are_inside(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    run = tool_request("fenicsx", "a.py", {"n": 1}, cwd=str(tmp_path), container="dolfinx:1")
    assert run.argv == ("python3", "/joblens-script/a.py")
    assert run.env["SIM_N"] == "1"
    assert run.container is not None
    assert run.container.image == "dolfinx:1"
    assert run.container.volumes == ("{folder}:/joblens", f"{tmp_path}:/joblens-script:ro")
    assert (run.container.workdir, run.cwd) == ("/joblens", "")
    inside = placed(run, "/some/where").container
    assert inside is not None
    assert inside.volumes[0] == "/some/where:/joblens"


def test_a_container_of_ones_own_keeps_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "a.sh").touch()
    given = ContainerJob(image="i", volumes=("/x:/y",), network="none", workdir="/w", user="5:5")
    run = tool_request("bash", "a.sh", cwd=str(tmp_path), container=given)
    assert run.container is not None
    assert run.container.volumes == ("/x:/y", f"{tmp_path}:/w", f"{tmp_path}:/joblens-script:ro")
    assert (run.container.network, run.container.user) == ("none", "5:5")


def test_requirements_said_go_before_the_tools_and_say_how_many_ranks_there_are() -> None:
    usual = tool_request("mpi", "pi.py", here=False)
    assert (usual.requirements, usual.argv[:3]) == (Requirements(cpus=2), ("mpirun", "-n", "2"))
    given = tool_request("mpi", "pi.py", requirements=Requirements(cpus=3, timeout_s=9), here=False)
    assert (given.requirements, given.argv[2]) == (Requirements(cpus=3, timeout_s=9), "3")


def test_a_device_adds_what_the_tool_says_of_it() -> None:
    run = tool_request("lammps", "example.lammps", {"steps": 1}, device="gpu", here=False)
    assert run.argv[-8:] == ("-sf", "gpu", "-pk", "gpu", "1", "-var", "steps", "1")
    with pytest.raises(ToolError, match="fenicsx does not support 'gpu'; it supports cpu"):
        tool_request("fenicsx", "poisson.py", device="gpu", here=False)


def test_the_environment_of_the_machine_goes_before_what_a_tool_says_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def root() -> str:
        return tool_request("openfoam", "example_cavity.py", here=False).env["WM_PROJECT_DIR"]

    monkeypatch.delenv("WM_PROJECT_DIR", raising=False)
    assert root() == "/usr/share/openfoam"
    monkeypatch.setenv("WM_PROJECT_DIR", "/opt/foam")
    assert root() == "/opt/foam"


def test_a_program_that_is_not_there_is_reported_with_what_to_do(users: Path) -> None:
    write_tool(
        users, "mine", 'command: ["{program}"]\nprograms: [no-such-program]\ninstall: apt install it\n'
    )
    (users / "s").touch()
    with pytest.raises(
        ToolError, match="mine cannot run here: there is no program no-such-program"
    ) as raised:
        tool_request("mine", str(users / "s"))
    assert raised.value.hint == "apt install it"


def test_the_first_program_in_the_path_that_passes_its_check_is_taken(
    users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in (("first", 1), ("second", 0)):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "solver"
        program.write_text(f'#!/bin/sh\n[ "$1" = --check ] && exit {code}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/first:{tmp_path}/second:{os.environ['PATH']}")
    write_tool(users, "mine", 'command: ["{program}"]\nprograms: [solver]\ncheck: [--check]\n')
    (users / "s").touch()
    assert tool_request("mine", str(users / "s")).argv == (f"{tmp_path}/second/solver",)
    monkeypatch.setenv("PATH", f"{tmp_path}/first:/usr/bin:/bin")
    assert missing_for(find_tool("mine")) == "no solver here passes its check (solver --check)"


@pytest.mark.parametrize(
    ("tool", "script", "message"),
    [
        ("fenicsx", "poison.py", "did you mean 'poisson.py'?"),
        ("fenicsx", "", "no script given"),
        ("python", "a.sh", "python runs scripts ending in .py, not a.sh"),
        ("bash", "/", "/ is a directory"),
    ],
)
def test_a_script_that_cannot_be_run_is_reported(tool: str, script: str, message: str) -> None:
    with pytest.raises(ToolError) as raised:
        tool_request(tool, script, here=False)
    assert message in f"{raised.value} {raised.value.hint}"


def test_parameters_that_are_no_mapping_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "a.sh"
    script.touch()
    with pytest.raises(InputError, match="expected a dict"):
        tool_request("bash", script, "mesh_size=64")  # type: ignore[arg-type]


def test_a_program_that_was_installed_in_the_meantime_is_found(
    users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tool(users, "mine", 'command: ["{program}"]\nprograms: [solver]\ncheck: [--check]\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "solver"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert missing_for(find_tool("mine"))
    program.write_text("#!/bin/sh\nexit 0\n")
    assert missing_for(find_tool("mine")) == ""
