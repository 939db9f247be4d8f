"""What is refused about jobs in containers before anything is begun."""

from pathlib import Path
from typing import Any

import pytest

from joblens.agent.containers.protocol import with_whole_paths
from joblens.app.jobs.requests import Request, check_request, client_env, container_of
from joblens.model.errors import InputError
from joblens.model.jobs.job import Accounting, ContainerJob
from tests.conftest import RunJoblens


def test_the_image_alone_says_what_runs() -> None:
    check_request(Request(container=ContainerJob(image="img")))


@pytest.mark.parametrize(
    ("container", "more", "words"),
    [
        (ContainerJob(image=" "), {}, "image is empty"),
        (ContainerJob(image="img", engine="rocket"), {}, "expected docker, podman or apptainer"),
        (ContainerJob(image="img", volumes=("/etc",)), {}, "expected SOURCE:TARGET"),
        (ContainerJob(image="img", volumes=("/etc:there",)), {}, "must begin with /"),
        (ContainerJob(image="img", volumes=("/no/such/folder:/there",)), {}, "there is no /no/such/folder"),
        (ContainerJob(image="img", devices=("fuse",)), {}, "expected a path such as /dev/fuse"),
        (ContainerJob(image="img\0"), {}, "NUL"),
        (ContainerJob(image="img"), {"cwd": "/tmp"}, "--cwd is a directory of this machine"),
        (ContainerJob(image="img"), {"accounting": Accounting.PROCESS_TREE}, "are not children of joblens"),
    ],
)
def test_what_cannot_be_used_is_reported(container: ContainerJob, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_request(Request(argv=("true",), container=container, **more))


def test_paths_are_made_whole_and_names_of_volumes_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ContainerJob(image="img", volumes=("./here:/a", "kept:/b:ro"), socket="engine.sock")
    whole = with_whole_paths(asked)
    assert whole.volumes == (f"{tmp_path}/here:/a", "kept:/b:ro")
    assert whole.socket == f"{tmp_path}/engine.sock"


def test_the_containers_variables_are_kept_apart_from_the_clients() -> None:
    env = client_env({"PATH": "/bin"}, {"PATH": "/inside"}, "u-1")
    assert env["PATH"] == "/bin"
    assert env["JOBLENS_CONTAINER_ENV_PATH"] == "/inside"
    assert env["JOBLENS_CONTAINER_ENV_JOBLENS_JOB_ID"] == "u-1"


def test_as_a_python_program_gives_it() -> None:
    assert container_of(None) is None
    assert container_of("img") == ContainerJob(image="img")
    given = {"image": "img", "volumes": ["/a:/b"], "pull": True}
    assert container_of(given) == ContainerJob(image="img", volumes=("/a:/b",), pull=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "docker"}, "with 'image' in it"),
        ({"image": "img", "volume": []}, "unknown key 'volume'"),
        ({"image": "img", "volumes": "/a:/b"}, "not a list of strings"),
        ({"image": 3}, "3 cannot be used"),
        ({"image": "img", "pull": "yes"}, "cannot be used"),
    ],
)
def test_mistakes_of_a_python_program_are_reported(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        container_of(given)


def test_options_of_containers_go_with_a_container_only(joblens: RunJoblens) -> None:
    output = joblens("run", "--volume", "/a:/b", "--", "true", code=2).stderr
    assert "--volume needs --container IMAGE" in output
    output = joblens("run", "--container", "img", "--cwd", "/tmp", "--", "true", code=2).stderr
    assert "--container-workdir" in output
