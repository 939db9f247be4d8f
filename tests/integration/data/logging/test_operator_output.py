"""What operators print, kept in a file of bounded size."""

import subprocess
import time
from pathlib import Path

from joblens.data.logging.operator_output import captured_output


def test_a_program_in_the_background_is_not_waited_for_and_can_still_write(tmp_path: Path) -> None:
    result = [tmp_path / "first.log", tmp_path / "second.log"]
    script = "echo here; while [ ! -e go ]; do sleep 0.01; done; yes | head -c 300000; echo there"
    with captured_output(str(result[0])):
        program = subprocess.Popen(["sh", "-c", script], cwd=tmp_path)
        while not result[0].exists():
            time.sleep(0.01)
    with captured_output(str(result[1])):
        (tmp_path / "go").touch()
        assert program.wait() == 0
    assert result[0].read_text() == "here\n"
    assert result[1].read_text().endswith("y\nthere\n")
