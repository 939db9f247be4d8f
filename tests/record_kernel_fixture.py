"""Records what a kernel says about a small job whose usage is known, for tests on other machines.

    PYTHONPATH=src python tests/record_kernel_fixture.py tests/fixtures/kernel/NAME [DIRECTORY-ON-A-DISK]

Run as root. Makes a control group, runs a job in it that burns, allocates, forks and writes, and saves the
group's files at two instants and after the end (1/, 2/, end/), with truth.json: what the job itself and
wait4 say at those instants."""

import json
import os
import signal
import sys
from typing import IO, Any

from joblens.agent.cgroups.groups import GroupFactory, JobGroups

MIB = 1024 * 1024

JOB = """
import json, mmap, os, sys, time
target = sys.argv[1]

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def fork_burners(count, seconds):
    for _ in range(count):
        if os.fork() == 0:
            burn(seconds)
            os._exit(0)
    for _ in range(count):
        os.wait()

def write_direct(mib):
    page = mmap.mmap(-1, 1 << 20)
    page.write(b"x" * (1 << 20))
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    for _ in range(mib):
        os.write(fd, page)
    os.fsync(fd)
    os.close(fd)

def tell():
    times = os.times()
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
    io = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    print(json.dumps({
        "cpu_usec": round(1e6 * (times.user + times.system + times.children_user + times.children_system)),
        "anon_bytes": int(status["RssAnon"].split()[0]) * 1024,
        "io": {name: int(value) for name, value in io.items()},
    }), flush=True)
    sys.stdin.readline()

fork_burners(20, 0.005)
held = bytearray(os.urandom(1) * (64 << 20))
write_direct(8)
tell()
burn(0.2)
more = bytearray(os.urandom(1) * (32 << 20))
write_direct(4)
del more
tell()
os.unlink(target)
"""


def main(destination: str, disk: str) -> None:
    groups = GroupFactory.detect().create(f"fixture-{os.getpid()}")
    try:
        enforced = groups.set_limits(cpus=1.0, memory_bytes=512 * MIB, pids=50)
        truth: dict[str, Any] = {
            "kind": groups.kind,
            "kernel": os.uname().release,
            "enforced": enforced,
            "instants": [],
        }
        truth["gaps"] = dict(GroupFactory.detect().gaps)
        to_job, from_job, pid = start_job(groups, f"{disk}/joblens-fixture-{os.getpid()}")
        for instant in ("1", "2"):
            truth["instants"].append(json.loads(from_job.readline()))
            save_groups(groups, f"{destination}/{instant}")
            to_job.write("\n")
            to_job.flush()
        _, status, usage = os.wait4(pid, 0)
        save_groups(groups, f"{destination}/end")
        truth["end"] = {
            "exit_status": status,
            "cpu_usec": round(1e6 * (usage.ru_utime + usage.ru_stime)),
            "largest_process_bytes": usage.ru_maxrss * 1024,
        }
    finally:
        groups.kill()
        groups.remove()
    for name in ("cgroup", "mountinfo"):
        with open(f"/proc/self/{name}") as source:
            lines = [line for line in source if name == "cgroup" or "cgroup" in line]
        with open(f"{destination}/self_{name}", "w") as file:
            file.writelines(lines)
    with open(f"{destination}/truth.json", "w") as file:
        json.dump(truth, file, indent=1)
    sys.stdout.write(f"recorded {groups.kind} of {truth['kernel']} in {destination}\n")


def start_job(groups: JobGroups, target: str) -> tuple[IO[str], IO[str], int]:
    job_reads, we_write = os.pipe()
    we_read, job_writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for path in groups.attach_files():
                with open(path, "w") as file:
                    file.write("0")
            os.dup2(job_reads, 0)
            os.dup2(job_writes, 1)
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", JOB, target])
        finally:
            os._exit(127)
    os.close(job_reads)
    os.close(job_writes)
    signal.alarm(60)
    return os.fdopen(we_write, "w"), os.fdopen(we_read), pid


def save_groups(groups: JobGroups, destination: str) -> None:
    for hierarchy, directory in groups.paths.items():
        os.makedirs(f"{destination}/{hierarchy}", exist_ok=True)
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if not entry.is_file() or not worth_keeping(entry.name):
                continue
            try:
                with open(entry.path, "rb") as source:
                    data = source.read()
            except OSError:
                continue
            with open(f"{destination}/{hierarchy}/{entry.name}", "wb") as file:
                file.write(data)


def worth_keeping(name: str) -> bool:
    room = name.partition(".")[0]
    return room in ("cpu", "cpuacct", "memory", "io", "pids", "cgroup") and "numa" not in name


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "/var/tmp")
