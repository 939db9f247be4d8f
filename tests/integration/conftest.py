"""What tests of whole commands share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunJoblens
from tests.integration.run_jobs import Runner, runner
from tests.integration.workflow_desk import WorkflowDesk


@pytest.fixture
def desk(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowDesk]:
    """Somebody who runs workflows, with a store and a folder of their own."""
    one = WorkflowDesk(tmp_path, joblens, store_path)
    yield one
    one.close()


@pytest.fixture
def root_run(tmp_path: Path) -> Iterator[Runner]:
    """`joblens run` as whoever the tests are, with the accounting it picks by itself."""
    with runner("auto", tmp_path) as one:
        yield one
