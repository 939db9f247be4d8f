"""What tests of whole commands share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunJoblens
from tests.integration.engines import Engine, shared_engine
from tests.integration.run_jobs import Runner, runner
from tests.integration.workflow_cli import WorkflowCli
from tests.ray_head import RayCluster, ray_cluster


@pytest.fixture
def cli(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowCli]:
    """Somebody who runs workflows, with a store and a folder of their own."""
    one = WorkflowCli(tmp_path, joblens, store_path)
    yield one
    one.close()


@pytest.fixture
def root_run(tmp_path: Path) -> Iterator[Runner]:
    """`joblens run` as whoever the tests are, with the accounting it picks by itself."""
    with runner("auto", tmp_path) as one:
        yield one


@pytest.fixture(scope="session")
def ray_head() -> Iterator[RayCluster]:
    """A Ray cluster with one node. Starting one takes longer than most tests on it."""
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_engine("docker", _shared_folder(tmp_path_factory)) as engine:
        yield engine


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with shared_engine("podman", _shared_folder(tmp_path_factory)) as engine:
        yield engine


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the two."""
    found: Engine = request.getfixturevalue(request.param)
    return found


def _shared_folder(factory: pytest.TempPathFactory) -> Path:
    """One for all processes of this test run."""
    base = factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "engines"
    folder.mkdir(exist_ok=True)
    return folder
