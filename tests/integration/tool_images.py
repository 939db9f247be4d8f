"""An image with nothing in it but names: the machine's own programs are mounted, so that a tool is exactly
the same inside and outside."""

import io
import subprocess
import tarfile

from joblens.model.jobs.job import ContainerJob
from tests.integration.engines import Engine

IMAGE = "joblens-host:1"
VOLUMES = ("/usr:/usr:ro", "/etc:/etc:ro")
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
_FOLDERS = ("dev", "etc", "joblens", "joblens-script", "proc", "sys", "tmp", "usr")


def host_container(docker: Engine) -> ContainerJob:
    """How a job of a tool runs in it."""
    if not docker.api().has_image(IMAGE):
        _import(docker)
    return ContainerJob(image=IMAGE, engine="docker", socket=docker.socket, volumes=VOLUMES, network="none")


def _import(docker: Engine) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, target in _LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
    subprocess.run(
        ["docker", "-H", f"unix://{docker.socket}", "import", "-", IMAGE],
        input=data.getvalue(),
        capture_output=True,
        check=True,
    )
