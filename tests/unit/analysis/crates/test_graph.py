"""Jobs as entities of a crate."""

from typing import Any

import pytest
from msgspec.structs import replace

from joblens.analysis.crates.actions import error_of, program_name
from joblens.analysis.crates.graph import CrateGraph, percent_encoded
from joblens.analysis.crates.profiles import job_crate
from joblens.model.crate import CrateAbout, CrateFile, CrateJob
from joblens.model.jobs.details import CodeVersion, ContainerFacts, Hardware, Program, Provenance
from joblens.model.jobs.job import ContainerJob, Placement, Requirements, Status, Usage
from tests.builders.records import START_US, a_job, a_record, an_outcome

ABOUT = CrateAbout(license="as you like", published_at_us=START_US, version="0.1.0")


def rich_job(**changes: Any) -> CrateJob:
    """A job of which everything is known."""
    job = CrateJob(
        record=a_record(
            job={
                "container": ContainerJob(image="registry.example.org:5000/group/solver:1.2"),
                "requirements": Requirements(memory_bytes=2**30, gpus=1),
                "seeds": {"seed": "7"},
                "env": {"OMP_NUM_THREADS": "4", "API_TOKEN": "do-not-tell"},
                "user": "ann",
                "cwd": "/home/ann/my project",
            },
            attempt={"placement": Placement(engine="slurm", job_id="123_4", nodes=("n1", "n2"))},
        ),
        inputs=(
            CrateFile(id="file://node7/in%20put", name="in put", bytes=3, digest="ff" * 16, kind="text/csv"),
        ),
        outputs=(CrateFile(id="file://node7/results/", name="results", is_folder=True),),
        provenance=Provenance(
            host="node7",
            system="Debian GNU/Linux 12",
            hardware=Hardware(cpu_model="EPYC", cpus=16, memory_bytes=2**36, gpus=("H200",)),
            code=CodeVersion(
                commit="ab" * 20,
                is_dirty=True,
                remote="https://joe:pass@example.org/x.git",
                root="/x",
                branch="b",
            ),
            programs=(Program(path="/usr/bin/python3", sha256="cd" * 32, bytes=99),),
            versions={"joblens": "0.1.0", "numpy": "2.4.0"},
            environment={"LANG": "C"},
        ),
        container=ContainerFacts(engine="docker", id="c", image_id="sha256:" + "ee" * 32),
    )
    return replace(job, **changes)


def entities(job: CrateJob) -> dict[str, dict[str, Any]]:
    return {entity["@id"]: entity for entity in job_crate(job, ABOUT)["@graph"]}


def action(job: CrateJob) -> dict[str, Any]:
    [found] = [one for one in entities(job).values() if one["@type"] == "CreateAction"]
    return found


def test_an_entity_that_is_named_twice_is_there_once_and_says_both() -> None:
    graph = CrateGraph()
    graph.add("#a", "Person", name="ann", knows=[{"@id": "#b"}])
    graph.add("#a", "Person", name="other", knows=[{"@id": "#b"}, {"@id": "#c"}], email=None)
    [found] = graph.document()["@graph"]
    assert found == {"@id": "#a", "@type": "Person", "name": "ann", "knows": [{"@id": "#b"}, {"@id": "#c"}]}


def test_a_list_of_one_is_that_one() -> None:
    graph = CrateGraph()
    graph.add("#a", "Person", knows=[{"@id": "#b"}])
    assert graph.document()["@graph"][0]["knows"] == {"@id": "#b"}


def test_equal_values_are_shared_and_others_are_not() -> None:
    graph = CrateGraph()
    one, same, other = (graph.value("parameter", "n", value) for value in (1, 1, "1"))
    assert one == same
    assert one != other


def test_ids_are_safe_in_a_uri() -> None:
    assert percent_encoded("a b/ü?#") == "a%20b/%C3%BC%3F%23"


def test_values_that_json_ld_would_read_as_entities_become_text() -> None:
    graph = CrateGraph()
    graph.value("parameter", "sizes", [1, {"a": 2}])
    assert graph.document()["@graph"][0]["value"] == '[1,{"a":2}]'


def test_a_container_image_is_taken_apart() -> None:
    [image] = [one for one in entities(rich_job()).values() if one["@type"] == "ContainerImage"]
    assert (image["registry"], image["name"], image["tag"]) == (
        "registry.example.org:5000",
        "group/solver",
        "1.2",
    )
    assert image["sha256"] == "ee" * 32


@pytest.mark.parametrize(
    ("image", "registry", "name", "tag"),
    [
        ("python", "docker.io", "python", "latest"),
        ("group/tool:3", "docker.io", "group/tool", "3"),
        ("localhost/tool@sha256:" + "ab" * 32, "localhost", "tool", None),
    ],
)
def test_images_without_a_registry_come_from_the_usual_one(
    image: str, registry: str, name: str, tag: str | None
) -> None:
    record = a_record(job={"container": ContainerJob(image=image)})
    [found] = [one for one in entities(CrateJob(record=record)).values() if one["@type"] == "ContainerImage"]
    assert (found["registry"], found["name"], found.get("tag")) == (registry, name, tag)


def test_code_is_reported_with_its_commit_and_without_its_password() -> None:
    [code] = [one for one in entities(rich_job()).values() if one["@type"] == "SoftwareSourceCode"]
    assert code["version"] == "ab" * 20
    assert "uncommitted" in code["description"]
    assert "pass" not in code["codeRepository"]


def test_variables_that_are_not_on_the_list_have_no_value() -> None:
    environment = {
        one["name"]: one["value"]
        for one in entities(rich_job()).values()
        if one["@id"].startswith("#environment-")
    }
    assert environment == {"API_TOKEN": "***", "LANG": "C", "OMP_NUM_THREADS": "4"}


def test_what_a_cluster_and_the_user_said_is_reported_beside() -> None:
    found = entities(rich_job())
    more = {
        found[ref["@id"]]["name"]: found[ref["@id"]]["value"]
        for ref in action(rich_job())["additionalProperty"]
    }
    assert more == {
        "memory_bytes": 2**30,
        "gpus": 1,
        "seed": "7",
        "engine": "slurm",
        "job id": "123_4",
        "nodes": "n1, n2",
    }


def test_a_digest_that_is_no_sha256_is_an_identifier() -> None:
    file = entities(rich_job())["file://node7/in%20put"]
    assert "sha256" not in file
    assert file["identifier"] == {"@id": f"#blake2b-{'ff' * 16}"}


def test_a_number_that_is_a_lower_bound_says_so() -> None:
    usage = Usage(
        memory_peak_bytes=5, sources={"memory_peak": "samples"}, lower_bounds=("memory_peak_bytes",)
    )
    found = entities(CrateJob(record=a_record(usage=usage)))
    [memory] = [one for one in found.values() if one.get("propertyID") == "joblens:memory_peak_bytes"]
    assert memory["description"] == "at least; samples"


def test_a_job_that_runs_has_no_end_and_no_error() -> None:
    record = replace(a_record(), status=Status.RUNNING, outcome=None)
    found = action(CrateJob(record=record))
    assert found["actionStatus"].endswith("ActiveActionStatus")
    assert not {"endTime", "error", "resourceUsage"} & set(found)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exit_code": 3, "stderr_tail": "no room\n"}, "exit code 3\nno room"),
        ({"exit_code": None, "signal": 9, "reason": "signal"}, "killed by signal 9"),
        ({"status": Status.TIMEOUT, "reason": "timeout"}, "timeout"),
        ({"error": "exit code 3", "stderr_tail": "exit code 3"}, "exit code 3"),
        ({"exit_code": 1, "stderr_tail": "password=hunter2hunter2"}, "exit code 1\npassword=***"),
    ],
)
def test_how_a_job_failed_is_reported_with_the_last_it_said(changes: dict[str, Any], expected: str) -> None:
    assert error_of(an_outcome(**{"status": Status.FAILED, **changes})) == expected


def test_the_program_of_a_shell_line_is_its_first_word() -> None:
    assert program_name(a_job(argv=("/usr/bin/make all && x",), is_shell=True)) == "make"
    assert program_name(a_job(argv=("/usr/bin/make", "all"))) == "make"
    assert program_name(a_job(argv=(), name="named")) == "named"
