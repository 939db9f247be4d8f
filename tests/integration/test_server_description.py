"""Schemathesis asks a real server everything that its description allows, and much that it does not."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("starlette")
pytest.importorskip("schemathesis")

from joblens.model.access import Role
from joblens.web.guard import Rates
from tests.builders.writes import ended, queued, samples, started
from tests.integration.served import Served

# A cursor, a time or a range can be well-formed and still be none of this server's.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "400", "401", "403", "404", "409", "416", "422", "429", "5xx"]
# A text that is too long may also be a body that is too large.
[checks.negative_data_rejection]
expected-statuses = [
    "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx",
]
"""
# They start processes, end the session's own token, or never end.
EXCLUDED = (
    "submitJob",
    "storeSubmit",
    "startRun",
    "rerunJob",
    "resumeRun",
    "rerunRun",
    "revokeToken",
    "rotateToken",
)
STREAMS = ("streamSamples", "streamLog", "streamRunEvents")
EXAMPLES = os.environ.get("JOBLENS_SCHEMATHESIS_EXAMPLES", "3")


class Asked(NamedTuple):
    cases: int
    is_success: bool
    output: str


def ask_everything(folder: Path, examples: str) -> Asked:
    """Starts a server with two jobs, and asks it all that its description allows, stateful and with every
    check."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    with Served(folder) as server:
        # Wrong tokens of one address are answered with 429 after a while, where the check expects 401.
        server.serving.application.context.auth._failures = Rates(per_second=1e6, burst=1e6)
        for name in ("one", "two"):
            made = queued(name=name, tags=("night",))
            uuid = made.job.uuid
            server.apply(made, started(uuid), samples(uuid, 0, 5), ended(uuid))
        left_out = [word for name in (*EXCLUDED, *STREAMS) for word in ("--exclude-operation-id", name)]
        command = [sys.executable, "-m", "schemathesis.cli", "run"]
        command += [f"http://127.0.0.1:{server.port}/api/v1/openapi.json", "--max-examples", examples]
        token = server.token(Role.ADMIN, life_s=None)
        command += ["-H", f"Authorization: Bearer {token}", "--seed", "1", *left_out]
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
    cases = re.search(r"([0-9,]+) generated", done.stdout)
    assert cases is not None, done.stdout[-4000:] + done.stderr[-2000:]
    return Asked(int(cases[1].replace(",", "")), done.returncode == 0, done.stdout)


@pytest.mark.slow
def test_no_request_fails_the_server_or_gets_an_undocumented_answer(tmp_path: Path) -> None:
    asked = ask_everything(tmp_path, EXAMPLES)
    print(f"schemathesis: {asked.cases} cases")  # noqa: T201 - a figure to read
    assert asked.is_success, asked.output[-6000:]
