import subprocess
import sys
from pathlib import Path

ROW = b'{"text": "a", "title": "t", "n": 1}\n'


def test_a_folder_that_may_not_be_searched_is_no_folder_without_files(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(ROW)
    (folder / "inner").chmod(0)
    # Somebody who is not asked for permission anywhere gives that up first.
    code = (
        "import os, sys\n"
        "from joblens.data.files.datasets import find_files\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "find_files(['inner/x.jsonl' if sys.argv[1:] else '.'])\n"
    )
    folder.chmod(0o755)
    messages = []
    for arguments in ((), ("file",)):
        command = [sys.executable, "-c", code, *arguments]
        messages.append(
            subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr
        )
    (folder / "inner").chmod(0o700)
    assert "./inner cannot be listed: Permission denied" in messages[0]
    assert "inner/x.jsonl cannot be read: Permission denied" in messages[1]
