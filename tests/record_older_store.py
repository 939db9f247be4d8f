"""Records a store, a journal, what a killed owner and a killed driver leave, and exports, written by another
version of joblens:

    git worktree add /tmp/older 71ad7c68
    unshare --uts sh -c 'hostname older-host; python tests/record_older_store.py /tmp/older/src'

Run it as root, with the Python of an environment that has the packages of that version. It writes
`tests/fixtures/older_store`, which has only programs of the system in it and no path of a checkout.
"""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw

FOLDER = Path("/tmp/older-joblens")
STORE = FOLDER / "store" / "joblens.db"
STATE = FOLDER / "state"
FIXTURE = Path(__file__).parent / "fixtures" / "older_store"
STATEMENTS = (
    *("sqlite/queries.sql", "sqlite/ticket_queries.sql"),
    *("postgres/reading.sql", "postgres/writing.sql", "postgres/ticket_queries.sql"),
)
WORKFLOW = """\
name: older
jobs:
  - {name: make, command: "echo made"}
  - {name: "count_{n}", command: "exit {n}", depends_on: [make], parameters: {n: "0:1"}}
"""


STOPPED = """\
name: stopped
jobs:
  - {name: first, command: "echo first >> ran"}
  - name: second
    command: "echo second >> ran; [ -e pid ] || { echo $$ > pid; exec sleep 60; }"
    depends_on: [first]
  - {name: third, command: "echo third >> ran", depends_on: [second]}
"""


def environment(source: str) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(FOLDER),
        "PYTHONPATH": source,
        "JOBLENS_STORE": str(STORE),
        "XDG_STATE_HOME": str(STATE),
        "XDG_DATA_HOME": str(FOLDER / "data"),
        "XDG_CONFIG_HOME": str(FOLDER / "config"),
        "XDG_RUNTIME_DIR": str(FOLDER / "runtime"),
        "JOBLENS_SUPERVISOR_IDLE": "0",
        "JOBLENS_LIMITS_ACCOUNTING": "process_tree",
    }


def record_exports(command: list[str], env: dict[str, str]) -> None:
    def export(*arguments: str) -> None:
        subprocess.run([*command, "export", *arguments], env=env, cwd=FOLDER, check=True)

    shutil.rmtree(FIXTURE / "exports", ignore_errors=True)
    target = FIXTURE / "exports"
    target.mkdir(parents=True)
    export("history", "--job", "sampled", "-o", str(target / "history.jsonl"))
    export("samples", "--job", "sampled", "-o", str(target / "sampled.jsonl.gz"))
    export("time-series", "--job", "sampled", "-o", str(FOLDER / "time-series.db"))
    packed = gzip.compress((FOLDER / "time-series.db").read_bytes(), mtime=0)
    (target / "time-series.db.gz").write_bytes(packed)
    export("ro-crate", "sampled", "-o", str(target / "crate.zip"))


def record_stopped_run(command: list[str], env: dict[str, str]) -> None:
    """A run whose driver was killed after the first job, and whose second job was killed with it."""
    folder = FOLDER / "stopped"
    folder.mkdir()
    (folder / "stopped.yaml").write_text(STOPPED)
    env = env | {"JOBLENS_STORE": str(folder / "joblens.db")}
    driver = subprocess.Popen([*command, "run", "stopped.yaml"], env=env, cwd=folder)
    while not (folder / "pid").exists() or not (folder / "pid").read_text().endswith("\n"):
        time.sleep(0.05)
    time.sleep(1)
    driver.kill()
    driver.wait()
    os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
    time.sleep(1)
    connection = apsw.Connection(str(folder / "joblens.db"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    (FIXTURE / "stopped.db.gz").write_bytes(gzip.compress((folder / "joblens.db").read_bytes(), mtime=0))


def main(source: str) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "runtime").mkdir(parents=True, mode=0o700)
    env = environment(source)
    command = [sys.executable, "-m", "joblens"]

    def joblens(*arguments: str) -> None:
        subprocess.run([*command, *arguments], env=env, cwd=FOLDER, check=False)

    joblens("run", "--id", "sampled", "--tag", "kept", "--interval", "50ms", "--", "sleep", "0.5")
    joblens("run", "--id", "failing", "--shell", "echo oops >&2; exit 3")
    (FOLDER / "older.yaml").write_text(WORKFLOW)
    joblens("run", "older.yaml")
    joblens(
        "submit", "--id", "waiting", "--queue", "batch", "--broker", "redis://127.0.0.1:1/0", "--", "true"
    )

    owner = subprocess.Popen([*command, "run", "--id", "orphaned", "sleep", "2"], env=env, cwd=FOLDER)
    time.sleep(1)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    while not (outcomes := list(STATE.rglob("*.outcome"))):
        time.sleep(0.1)
    (outcome,) = outcomes

    connection = apsw.Connection(str(STORE))
    connection.execute("BEGIN IMMEDIATE")
    joblens("run", "--id", "journaled", "--", "true")
    connection.execute("ROLLBACK")
    (journal,) = STATE.rglob("*.journal")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()

    FIXTURE.mkdir(exist_ok=True)
    (FIXTURE / "joblens.db.gz").write_bytes(gzip.compress(STORE.read_bytes(), mtime=0))
    shutil.copy(journal, FIXTURE / "writes.journal")
    shutil.copy(outcome, FIXTURE / "orphaned.outcome")
    for name in STATEMENTS:
        (FIXTURE / name).parent.mkdir(exist_ok=True)
        shutil.copy(Path(source) / "joblens" / "stores" / name, FIXTURE / name)
    record_exports(command, env)
    record_stopped_run(command, env)


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1])
