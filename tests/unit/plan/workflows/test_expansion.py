"""From what is written to every job by itself."""

import itertools
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.jobs.job import Requirements
from joblens.model.runs.workflow_spec import (
    ActionSpec,
    ActionType,
    DatasetSpec,
    FailureHandler,
    FileSpec,
    HashMode,
    ParameterMode,
    RequirementsSpec,
    RetryRule,
    TriggerType,
    UserDataSpec,
)
from joblens.plan.workflows.expansion import make_plan
from joblens.plan.workflows.graph import Graph
from tests.unit.plan.builders import job, planned, workflow

SMALL = RequirementsSpec(name="small", num_cpus=2, memory_bytes=1 << 30, num_gpus=1, runtime_s=60)


def names(plan: Any) -> list[str]:
    return [each.name for each in plan.jobs]


def test_parameters_are_combined_in_the_order_written_the_last_fastest() -> None:
    plan = planned(workflow(job("j_{b}_{a}", "run {a} {b:02d}", parameters={"b": "1:2", "a": ["x", "y"]})))
    assert names(plan) == ["j_1_x", "j_1_y", "j_2_x", "j_2_y"]
    assert [each.command for each in plan.jobs] == ["run x 01", "run y 01", "run x 02", "run y 02"]
    assert plan.jobs[1].parameters == {"b": 1, "a": "y"}


def test_shared_parameters_need_to_be_named_and_own_ones_replace_them() -> None:
    spec = workflow(
        job("a_{x}_{y}", use_parameters=("y", "x")),
        job("b_{x}_{y}", use_parameters=("y", "x"), parameters={"y": [9]}),
        job("c"),
        parameters={"x": "1:2", "y": "5:6"},
    )
    assert names(planned(spec)) == ["a_1_5", "a_2_5", "a_1_6", "a_2_6", "b_1_9", "b_2_9", "c"]


def test_zip_pairs_values() -> None:
    spec = workflow(
        job("{a}{b}", parameters={"a": [1, 2], "b": ["x", "y"]}, parameter_mode=ParameterMode.ZIP)
    )
    assert names(planned(spec)) == ["1x", "2y"]


def test_a_table_makes_one_job_a_row() -> None:
    rows = [{"case": "low", "v": "0.5"}, {"case": "high", "v": "2"}]
    spec = workflow(
        job("own_{case}", "echo {v:.2f}", parameters_file="c.csv"),
        job("shared_{case}", use_parameters_file=True),
        parameters_file="c.csv",
    )
    plan = planned(spec, tables={"c.csv": rows})
    assert names(plan) == ["own_low", "own_high", "shared_low", "shared_high"]
    assert plan.jobs[0].command == "echo 0.50"


def test_values_given_for_a_run_replace_those_of_parameters_and_variables() -> None:
    spec = workflow(
        job("a_{x}", "{root}", use_parameters=("x",)),
        job("b_{y}", parameters={"y": "1:2"}),
        parameters={"x": "1:3"},
        variables={"root": "/data"},
    )
    plan = planned(spec, parameters={"x": "7:8", "y": "[z]", "root": "/new"})
    assert names(plan) == ["a_7", "a_8", "b_z"]
    assert plan.jobs[0].command == "/new"


def test_placeholders_are_put_in_everywhere() -> None:
    spec = workflow(
        job("prep_a"),
        job("prep_b"),
        job(
            "j_{i}",
            "run",
            parameters={"i": ["a", "b"]},
            invocation_script="./{i}.sh",
            env={"I": "{i}"},
            requirements="{i}",
            scheduler="s_{i}",
            label="l_{i}",
            depends_on_regexes=("^prep_{i}$",),
            input_files=("f_{i}",),
            input_user_data=("d_{i}",),
        ),
        files=(FileSpec(name="f_{i}", path="{root}/{i}.txt", parameters={"i": ["a", "b"]}),),
        user_data=(UserDataSpec(name="d_{i}", data={"deep": ["{i}", 1]}, parameters={"i": ["a", "b"]}),),
        requirements=(RequirementsSpec(name="a", num_cpus=1), RequirementsSpec(name="b", num_cpus=2)),
        slurm_schedulers=({"name": "s_a"}, {"name": "s_b"}),
        variables={"root": "data"},
        env={"ROOT": "{root}"},
    )
    plan = planned(spec)
    last = plan.jobs[3]
    assert (last.invocation_script, last.label, last.scheduler) == ("./b.sh", "l_b", "s_b")
    assert last.env == {"ROOT": "data", "I": "b"}
    assert last.requirements.cpus == 2
    assert last.depends_on == (1,)
    assert plan.files[last.input_files[0]].path == "data/b.txt"
    assert plan.user_data[last.input_user_data[0]].data == {"deep": ["b", 1]}


def test_references_become_paths_and_make_dependencies() -> None:
    spec = workflow(
        job("use_{i}", "use ${files.input.f_{i}} $HOME ${HOME}", parameters={"i": "1:2"}),
        job("make_{i}", "make -o ${files.output.f_{i}}", parameters={"i": "1:2"}),
        job("tell", "echo ${user_data.output.d}"),
        job("hear", "echo '${user_data.input.d}'"),
        files=(FileSpec(name="f_{i}", path="out/{i:03d}", parameters={"i": "1:2"}),),
        user_data=(UserDataSpec(name="d"),),
    )
    plan = planned(spec)
    assert plan.jobs[0].command == "use out/001 $HOME ${HOME}"
    assert [each.depends_on for each in plan.jobs] == [(2,), (3,), (), (), (), (4,)]
    assert plan.jobs[2].output_files == (0,)
    assert plan.files[1].producer == 3
    assert plan.user_data[0].producer == 4
    assert plan.jobs[5].command == "echo '${user_data.input.d}'"


def test_references_are_added_to_the_lists_that_were_written() -> None:
    spec = workflow(
        job("a", "x ${files.input.one}", input_files=("two",)),
        files=(FileSpec(name="one", path="1"), FileSpec(name="two", path="2")),
    )
    assert planned(spec).jobs[0].input_files == (1, 0)


def test_two_names_of_one_path_are_one_file() -> None:
    spec = workflow(
        job("make", output_files=("one",)),
        job("use", input_files=("other",)),
        files=(FileSpec(name="one", path="x"), FileSpec(name="other", path="x")),
    )
    assert planned(spec).jobs[1].depends_on == (0,)


def test_requirements_handlers_and_environments_are_shared_not_copied() -> None:
    spec = workflow(
        job("a_{i}", parameters={"i": "1:3"}, requirements="small", failure_handler="again", env={"X": "1"}),
        job("b", requirements="small"),
        job("c_{i}", parameters={"i": "1:2"}, requirements=RequirementsSpec(num_cpus=1)),
        requirements=(SMALL,),
        failure_handlers=(FailureHandler(name="again", rules=(RetryRule(exit_codes=(1,)),)),),
    )
    jobs = planned(spec).jobs
    assert jobs[0].requirements == Requirements(cpus=2, memory_bytes=1 << 30, gpus=1, timeout_s=60)
    assert len({id(each.requirements) for each in jobs[:4]}) == 1
    assert jobs[4].requirements is jobs[5].requirements
    assert len({id(each.env) for each in jobs[:3]}) == 1
    assert len({id(each.failure_handler) for each in jobs[:3]}) == 1
    assert (jobs[3].requirements_name, jobs[4].requirements_name) == ("small", "")


def test_actions_know_their_jobs() -> None:
    action = ActionSpec(
        trigger_type=TriggerType.ON_JOBS_COMPLETE,
        action_type=ActionType.RUN_COMMANDS,
        jobs=("last",),
        job_name_regexes=("^a_",),
        commands=("echo {who}",),
    )
    spec = workflow(
        job("a_{i}", parameters={"i": "1:2"}), job("last"), actions=(action,), variables={"who": "me"}
    )
    (found,) = planned(spec).actions
    assert found.jobs == (0, 1, 2)
    assert found.spec.commands == ("echo me",)


VALUES = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, min_size=1), st.booleans())
def test_there_is_one_job_a_combination_named_after_it(values: dict[str, list[int]], as_text: bool) -> None:
    name = "_".join(f"{{{each}}}" for each in values)
    written = {each: str(numbers) if as_text else numbers for each, numbers in values.items()}
    spec = workflow(job(f"j_{name}", f"run {name}", parameters=written))
    expected = ["_".join(map(str, each)) for each in itertools.product(*values.values())]
    plan = planned(spec)
    assert names(plan) == [f"j_{each}" for each in expected]
    assert [each.command for each in plan.jobs] == [f"run {each}" for each in expected]
    assert plan == planned(spec)


@given(st.lists(st.sets(st.integers(0, 5)), min_size=6, max_size=6))
def test_dependencies_named_matched_or_by_file_are_the_same(graph: list[set[int]]) -> None:
    edges = [{one for one in each if one < place} for place, each in enumerate(graph)]
    files = tuple(FileSpec(name=f"f{place}", path=f"p{place}") for place in range(6))
    spec = [
        workflow(
            *(
                job(f"j{place}", depends_on=tuple(f"j{one}" for one in each))
                for place, each in enumerate(edges)
            )
        ),
        workflow(
            *(
                job(
                    f"j{place}",
                    depends_on_regexes=(f"^j[{''.join(map(str, sorted(each)))}]$",) if each else (),
                )
                for place, each in enumerate(edges)
            )
        ),
        workflow(
            *(
                job(f"j{place}", output_files=(f"f{place}",), input_files=tuple(f"f{one}" for one in each))
                for place, each in enumerate(edges)
            ),
            files=files,
        ),
    ]
    expected = [tuple(sorted(each)) for each in edges]
    for each in spec:
        assert [one.depends_on for one in planned(each).jobs] == expected


@pytest.mark.parametrize(
    "spec",
    [
        workflow(
            job("first"),
            job(
                "j_{a}_{b}",
                "run --a {a} --b {b}",
                parameters={"a": "1:100", "b": "1:50"},
                depends_on=("first",),
            ),
            job("last", depends_on_regexes=("^j_",)),
        ),
        workflow(
            job("a_{i}", "make ${files.output.f{i}}", parameters={"i": "1:2500"}),
            job("b_{i}", "use ${files.input.f{i}}", parameters={"i": "1:2500"}),
            files=(FileSpec(name="f{i}", path="data/f{i}.txt", parameters={"i": "1:2500"}),),
        ),
    ],
    ids=["sweep", "files"],
)
def test_a_waiting_job_takes_less_than_a_kilobyte_beyond_its_text(spec: Any) -> None:
    make_plan(spec)  # what is made once stays out of the count
    tracemalloc.start()
    try:
        plan = planned(spec)
        graph = Graph(plan)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = sum(len(each.name) + len(each.command) for each in plan.jobs)
    assert len(graph.dependents) == len(plan.jobs)
    assert (used - text) / len(plan.jobs) < 1024


@pytest.mark.parametrize("other", ["./out/a.txt", "out//a.txt", "out/./a.txt", "out/b/../a.txt"])
def test_a_path_written_in_two_ways_is_one_file(other: str) -> None:
    files = (FileSpec(name="made", path="out/a.txt"), FileSpec(name="read", path=other))
    maker, reader = job("m", output_files=("made",)), job("r", "cat ${files.input.read}")
    plan = planned(workflow(reader, maker, files=files))
    assert plan.jobs[0].depends_on == (1,)
    assert [file.producer for file in plan.files] == [1, 1]
    assert plan.jobs[0].command == f"cat {other}"  # as it was written


def test_a_dataset_knows_all_that_fill_it_and_its_readers_wait_for_them() -> None:
    plan = planned(
        workflow(
            job("join", "join ${datasets.input.parts}"),
            job("part_{i}", "part {i} ${datasets.output.parts}", parameters={"i": "1:3"}),
            job("more", output_datasets=("again",)),
            job("part_and_list", "x ${datasets.output.parts}", output_datasets=("parts",)),
            datasets=(
                DatasetSpec(name="parts", path="{root}/parts/", description="of {root}"),
                DatasetSpec(name="again", path="out/parts", hash_mode=HashMode.NONE),
            ),
            variables={"root": "out"},
        )
    )
    parts, again = plan.datasets
    assert (parts.path, parts.description, parts.hash_mode) == ("out/parts/", "of out", HashMode.MANIFEST)
    assert parts.producers == again.producers == (1, 2, 3, 4, 5)  # two names of one directory
    assert plan.jobs[0].depends_on == (1, 2, 3, 4, 5)
    assert plan.jobs[0].command == "join out/parts/"
    assert [each.output_datasets for each in plan.jobs[1:]] == [(0,), (0,), (0,), (1,), (0,)]


def test_datasets_are_repeated_for_their_parameters() -> None:
    plan = planned(
        workflow(
            job("make_{k}", "make ${datasets.output.set_{k}}", parameters={"k": ["a", "b"]}),
            datasets=(DatasetSpec(name="set_{k}", path="out/{k}", parameters={"k": ["a", "b"]}),),
        )
    )
    assert [(each.name, each.path, each.producers) for each in plan.datasets] == [
        ("set_a", "out/a", (0,)),
        ("set_b", "out/b", (1,)),
    ]
