"""What of a planned job the kernel is given."""

import subprocess

import pytest

from joblens.agent.attempts.preparation import command_line
from joblens.model.runs.plan import PlannedJob


@pytest.mark.parametrize("mark", ["", "'", '"'])
def test_user_data_arrives_as_one_word_however_it_is_quoted(mark: str) -> None:
    data = {"x": {"a": ["it's", 'a "b"', "$HOME `id` \\ *"]}}
    planned = PlannedJob(name="j", command=f"printf %s {mark}${{user_data.input.x}}{mark}")
    _, _, argv = command_line(planned, data, "/bin/sh")
    printed = subprocess.check_output(argv, text=True)
    assert printed == '{"a":["it\'s","a \\"b\\"","$HOME `id` \\\\ *"]}'
