"""Jobs in containers of Podman, with its socket where the user has it: totals, a limit, an exit code."""

import io
import os
import subprocess
import tarfile
from typing import Any

from tests.vm.inside.jobs import answer, own_store, python, run_job

IMAGE = "localhost/of-this-machine"
# The program of the machine, read-only, in a container that has nothing of its own.
OPTIONS = ("--container", IMAGE, "--container-engine", "podman", "--container-network", "none")
VOLUME = ("--volume", "/usr:/usr:ro")


def import_image() -> None:
    """An image of empty folders and the links of a merged /usr."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("dev", "etc", "proc", "run", "sys", "tmp", "usr"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    podman("import", "-", IMAGE, stdin=archive.getvalue())


def podman(*arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run(["podman", *arguments], input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"podman {arguments[0]}: {done.stderr.decode()}")
    return done.stdout.decode()


def main() -> None:
    manager = ["--user"] if os.getuid() else []
    subprocess.run(["systemctl", *manager, "start", "podman.socket"], check=True)
    import_image()
    with own_store() as folder:

        def job(name: str, code: str, *options: str) -> dict[str, Any]:
            return run_job(folder, name, python(code), *OPTIONS, *VOLUME, *options)

        found = {
            "cpu": job("cpu", "burn(4); finish(used())"),
            "spike": job("spike", "block = fill(150); time.sleep(1); finish(150)"),
            "memory": job(
                "memory", "block = fill(300); time.sleep(1); print('survived')", "--memory", "100m"
            ),
            "code": job("code", "sys.exit(7)"),
        }
        left = podman("ps", "--all", "--quiet").split()
    podman("rmi", "--all", "--force")
    subprocess.run(["systemctl", *manager, "stop", "podman.socket", "podman.service"], check=True)
    answer({**found, "left": left})


main()
