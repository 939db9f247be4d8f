"""Disk image of a Debian machine for tests: systemd as init, cgroup v2 alone, an ordinary user, joblens.

The packages are installed once per suite and recipe; a new wheel only replaces joblens and writes the disk
again. Everything is kept in one cache folder outside the repository."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

PROGRAMS = ("mmdebstrap", "qemu-system-x86_64", "mkfs.ext4", "ssh", "ssh-keygen")

PYTHON_OF_SUITE = {"bookworm": "3.11", "trixie": "3.13"}  # the Python that this Debian has

PACKAGES = (
    "crun",
    "dbus",
    "dbus-user-session",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "libpam-systemd",
    "linux-image-cloud-amd64",
    "logrotate",
    "openssh-server",
    "podman",
    "procps",
    "python3",
    "python3-venv",
    "sudo",
    "systemd",
    "systemd-sysv",
    "udev",
    "uidmap",
)

EXTRAS = "celery"  # the units of workers need it; their broker is a folder
ALSO_NEEDED = ("async-timeout",)  # by Celery's redis with Python 3.11.2; pip asks the host's Python

USER = "alice"
USER_ID = 1000
DISK_SIZE = "4G"  # sparse
GUEST_ADDRESS = "10.0.2.15/24"  # QEMU's user network
GUEST_GATEWAY = "10.0.2.2"

# Timers that would start work of their own during a measurement, and a service that waits for the network.
MASKED_UNITS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "podman-auto-update.timer",
    "podman-restart.service",
    "systemd-networkd-wait-online.service",
)

Report = Callable[[str], None]


class CannotBuild(Exception):
    """The image cannot be built on this machine; the message names the missing part."""


@dataclass(frozen=True)
class Image:
    """Files that QEMU boots from, and the key that both logins accept."""

    suite: str
    disk: Path
    kernel: Path
    initrd: Path
    key: Path


def cache_folder() -> Path:
    chosen = os.environ.get("JOBLENS_VM_CACHE", "")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "joblens-vm"


def build(suite: str, folder: Path, report: Report) -> Image:
    """Return the image of this suite with the working tree's joblens; builds only the parts that changed."""
    if suite not in PYTHON_OF_SUITE:
        raise CannotBuild(f"SUITE={suite}: unknown suite; choose {' or '.join(PYTHON_OF_SUITE)}")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise CannotBuild(
            f"missing programs: {', '.join(missing)}; 'scripts/system-packages --vm' installs them"
        )
    folder = folder / suite
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        wheel = _build_wheel(folder, report)
        name = f"{_recipe_hash(suite)}-{_file_hash(wheel)}"
        image = Image(
            suite,
            disk=folder / f"disk-{name}",
            kernel=folder / f"vmlinuz-{_recipe_hash(suite)}",
            initrd=folder / f"initrd-{_recipe_hash(suite)}",
            key=folder / "key",
        )
        if not image.disk.exists():
            if os.geteuid() != 0:
                raise CannotBuild(
                    "building the image needs root (chroot, device files); run make test-vm as root"
                )
            root = _prepared_root(suite, folder, image, report)
            _install_joblens(suite, folder, root, wheel, report)
            _write_disk(folder, root, image.disk, report)
        return image


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lets only one build at a time use the folder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _recipe_hash(suite: str) -> str:
    recipe = [suite, PACKAGES, EXTRAS, MASKED_UNITS, USER, USER_ID, GUEST_ADDRESS, GUEST_GATEWAY, 3]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:12]


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _build_wheel(folder: Path, report: Report) -> Path:
    report("building the wheel of joblens")
    wheels = folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir()
    # Files get the same time in each build, so that the same sources give the same wheel.
    _run([*_PIP, "wheel", "--quiet", "--no-deps", "-w", wheels, REPOSITORY], SOURCE_DATE_EPOCH="1700000000")
    return next(wheels.glob("joblens-*.whl"))


_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def _prepared_root(suite: str, folder: Path, image: Image, report: Report) -> Path:
    """The root file system with all packages, users and settings, but without joblens."""
    root = folder / f"root-{_recipe_hash(suite)}"
    complete = folder / f"{root.name}.complete"
    if not complete.exists():
        for stale in folder.glob("root-*"):
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
        for stale in (*folder.glob("vmlinuz-*"), *folder.glob("initrd-*")):
            stale.unlink()
        report(f"installing Debian {suite} with mmdebstrap (once, minutes)")
        archive = folder / f"{root.name}.tar"
        _run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, archive]
        )
        report("unpacking it")
        root.mkdir()
        _run(["tar", "-C", root, "--exclude=./dev/*", "-xf", archive])
        archive.unlink()
        _configure(root, image.key)
        shutil.copy(next(root.glob("boot/vmlinuz-*")), image.kernel)
        shutil.copy(next(root.glob("boot/initrd.img-*")), image.initrd)
        complete.touch()
    return root


def _configure(root: Path, key: Path) -> None:
    if not key.exists():
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "joblens-vm", "-f", key])
    _chroot(root, "useradd", "-m", "-s", "/bin/bash", "-u", str(USER_ID), USER)
    files = {
        f"etc/sudoers.d/{USER}": f"{USER} ALL=(ALL) NOPASSWD: ALL\n",
        "etc/hostname": "vm\n",
        "etc/hosts": "127.0.0.1 localhost vm\n",
        "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
        "etc/systemd/network/10-qemu.network": (
            f"[Match]\nName=en* eth*\n\n[Network]\nAddress={GUEST_ADDRESS}\nGateway={GUEST_GATEWAY}\n"
        ),
    }
    for name, text in files.items():
        (root / name).write_text(text)
    public_key = Path(f"{key}.pub").read_text()
    for home in (f"home/{USER}", "root"):
        ssh = root / home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(public_key)
    _chroot(root, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}")
    _chroot(root, "systemctl", "enable", "systemd-networkd")
    _chroot(root, "systemctl", "mask", *MASKED_UNITS)
    _chroot(root, "python3", "-m", "venv", "/opt/joblens")
    (root / "usr/local/bin/joblens").symlink_to("/opt/joblens/bin/joblens")
    user_bin = root / f"home/{USER}/.local/bin"  # where the units of contrib/systemd expect it
    user_bin.mkdir(parents=True)
    (user_bin / "joblens").symlink_to("/opt/joblens/bin/joblens")
    _chroot(root, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}/.local")


def _install_joblens(suite: str, folder: Path, root: Path, wheel: Path, report: Report) -> None:
    report("installing joblens from its wheel")
    wheels = root / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir()
    version = PYTHON_OF_SUITE[suite]
    platforms = [
        f"--platform={name}_x86_64" for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    ]
    selection = [*platforms, "--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    _run([*_PIP, "download", "--quiet", *selection, "-d", wheels, f"{wheel}[{EXTRAS}]", *ALSO_NEEDED])
    install = [
        "/opt/joblens/bin/pip",
        "--isolated",
        "install",
        "--quiet",
        "--no-index",
        "--find-links=/wheels",
    ]
    _chroot(root, *install, "--upgrade", "--force-reinstall", f"joblens[{EXTRAS}]")
    shutil.rmtree(wheels)
    contrib = root / "opt/joblens/contrib"
    shutil.rmtree(contrib, ignore_errors=True)
    shutil.copytree(REPOSITORY / "contrib", contrib)


def _write_disk(folder: Path, root: Path, disk: Path, report: Report) -> None:
    report("writing the disk image")
    for stale in folder.glob("disk-*"):
        stale.unlink()  # a machine that runs from it keeps it open
    partial = folder / "partial-disk"
    partial.unlink(missing_ok=True)
    _run(["truncate", "-s", DISK_SIZE, partial])
    _run(["mkfs.ext4", "-q", "-F", "-d", root, partial])
    partial.rename(disk)


def _chroot(root: Path, *command: str) -> None:
    _run(["chroot", root, *command], PATH="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root")


def _run(command: list[str | Path], **env: str) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command[:4])
        raise CannotBuild(
            f"{shown} … failed (exit code {done.returncode}):\n{(done.stdout + done.stderr)[-2000:]}"
        )
