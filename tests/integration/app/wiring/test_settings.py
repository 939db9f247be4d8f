"""Which value wins, and where it says it came from."""

import subprocess
import sys
from pathlib import Path


def test_no_yaml_is_imported_when_there_is_no_file(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from joblens.app.wiring.settings import load_settings\n"
        "load_settings(overrides={'store.url': 'x.db'}, system_config='/nowhere')\n"
        "sys.exit('yaml' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == 0


def test_a_current_directory_that_vanished_is_no_obstacle(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "from joblens.app.wiring.settings import load_settings\n"
        "load_settings(system_config='/nowhere')\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False).returncode == 0
