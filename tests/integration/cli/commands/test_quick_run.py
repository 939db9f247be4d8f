"""Plain command lines of `run`, read without click, mean what click says they mean."""

import subprocess
import sys


def test_running_a_job_imports_nothing_of_click() -> None:
    imports = "import sys, joblens.cli.options.table, joblens.cli.commands.run, joblens.app.jobs.foreground"
    code = f"{imports}; print('click' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
