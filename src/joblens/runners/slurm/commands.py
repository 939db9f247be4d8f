"""Slurm commands: sbatch, squeue, scancel, sinfo, sacct, scontrol."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence

from joblens.analysis.slurm.text import (
    SACCT_FIELDS,
    SEPARATOR,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
    jobs_of,
    read_sacct,
    read_sinfo,
    read_squeue,
)
from joblens.model.clusters.slurm import Partition, QueuedJob, SlurmJob, SlurmRow
from joblens.model.errors import InputError, PlacingError
from joblens.runners.celery.broker_url import remove_passwords

_WAIT_S = 60.0
_IDS_A_CALL = 500
_LONGEST_MESSAGE = 600  # letters of a command's error output
# Set by users for their own use of the commands: here they would interfere.
_PREFIXES = ("SBATCH_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SALLOC_")
_OF_THE_SITE = ("SLURM_CONF", "SLURM_CLUSTERS")
_UNREACHABLE = (
    "Unable to contact slurm controller",
    "Could not establish a configuration source",
    "Unable to process configuration file",
    "Unable to establish",
    "Connection refused",
)
_UNKNOWN_ID = "Invalid job id"
_NOTHING_TO_DO = "#!/bin/sh\n"


def has_slurm() -> bool:
    return shutil.which("sbatch") is not None


def sbatch_argv(options: Sequence[str]) -> list[str]:
    return ["sbatch", "--parsable", *options]


class SlurmCommands:
    """Every method waits as long as Slurm does (a busy controller answers late), and raises PlacingError with
    Slurm's message if it is unreachable or refuses."""

    def __init__(self, wait_s: float = _WAIT_S) -> None:
        self._wait_s = wait_s
        self._sacct_fields: list[str] | None = None
        self._config: dict[str, str] | None = None

    def sbatch(self, options: Sequence[str], script: str) -> str:
        """Returns the job's id. The script goes through a pipe, so no file remains."""
        output = self._ask(*sbatch_argv(options), stdin=script, base=_submitters_environment())
        # 'N', or 'N;cluster'; a plug-in may have printed before.
        return output.strip().rsplit("\n", 1)[-1].partition(";")[0].strip()

    def test_sbatch(self, options: Sequence[str]) -> None:
        """Raises PlacingError for options that sbatch would refuse. Nothing is submitted."""
        self._ask("sbatch", "--test-only", *options, stdin=_NOTHING_TO_DO, base=_submitters_environment())

    def squeue(self, ids: Iterable[str] | None = None) -> list[QueuedJob]:
        """Returns those of the jobs that Slurm still knows, also those that ended within its MinJobAge
        (usually five minutes); None: all jobs of this user. Elements of an array are listed separately."""
        options = ["--noheader", "--array", "--states=all", f"--format={SQUEUE_FORMAT}"]
        if ids is None:
            return read_squeue(self._ask("squeue", *options, "--me"))
        found: list[QueuedJob] = []
        for part in _parts(ids):
            found += read_squeue(self._ask_of_ids("squeue", *options, f"--jobs={','.join(part)}"))
        return found

    def scancel(
        self, ids: Iterable[str], *, signal: str = "", only_waiting: bool = False, only_steps: bool = False
    ) -> None:
        """Cancels or signals jobs, ignoring those that are over. A signal goes to the script and to all
        steps, or to the steps alone: srun kills its tasks on a signal to itself."""
        options = ["--quiet", *([f"--signal={signal}"] if signal else [])]
        if signal and not only_steps:
            options.append("--full")
        if only_waiting:
            options.append("--state=PENDING")
        for part in _parts(ids):
            self._ask_of_ids("scancel", *options, *part)

    def sinfo(self) -> list[Partition]:
        options = ["--noheader", f"--format={SINFO_FORMAT}"]
        return read_sinfo(self._ask("sinfo", *options))

    def sacct(
        self, ids: Iterable[str] | None = None, *options: str, wait_s: float | None = None
    ) -> list[SlurmJob]:
        """Returns jobs with their steps: of these ids, or selected by the options."""
        if ids is None:
            return list(jobs_of(self._sacct_rows(options, wait_s)))
        found: list[SlurmJob] = []
        for part in _parts(ids):
            found += jobs_of(self._sacct_rows([f"--jobs={','.join(part)}", *options], wait_s))
        return found

    def _sacct_rows(self, options: Sequence[str], wait_s: float | None) -> list[SlurmRow]:
        fields = self.sacct_fields()
        words = ["--parsable2", f"--format={','.join(fields)}", f"--delimiter={SEPARATOR}", "--noheader"]
        text = self._ask_of_ids("sacct", *words, *options, wait_s=wait_s)
        return [row for _, row in read_sacct(text.split("\n"), fields) if row is not None]

    def sstat(self, job_id: str) -> list[SlurmRow]:
        """Returns the usage of the steps of a running job so far, as rows with only those numbers. Only its
        owner and root get an answer; others, and after its end, get nothing."""
        fields = (
            "JobID",
            "NTasks",
            "AveCPU",
            "MaxRSS",
            "TRESUsageInMax",
            "TRESUsageInTot",
            "TRESUsageOutTot",
        )
        words = ["--allsteps", "--parsable2", "--noheader", f"--format={','.join(fields)}"]
        try:
            text = self._ask("sstat", *words, f"--jobs={job_id}")
        except PlacingError:
            return []
        return [row for _, row in read_sacct(text.split("\n"), fields, "|") if row is not None]

    def sacct_fields(self) -> list[str]:
        """Returns the wanted fields that this version has."""
        if self._sacct_fields is None:
            known = {word.lower() for word in self._ask("sacct", "--helpformat").split()}
            self._sacct_fields = [name for name in SACCT_FIELDS if name.lower() in known]
        return self._sacct_fields

    def config(self) -> dict[str, str]:
        """Returns `scontrol show config`: MaxArraySize, ClusterName, SLURM_VERSION …"""
        if self._config is None:
            lines = self._ask("scontrol", "show", "config").splitlines()
            pairs = (line.partition("=") for line in lines if "=" in line)
            self._config = {name.strip(): value.strip() for name, _, value in pairs}
        return self._config

    def clusters(self) -> list[str]:
        """Returns the clusters of the accounting; [] without an answer."""
        try:
            return self._ask("sacctmgr", "-nP", "list", "cluster", "format=cluster").split()
        except PlacingError:
            return []

    def version(self) -> str:
        return self._ask("sinfo", "--version").strip().removeprefix("slurm-wlm ").removeprefix("slurm ")

    def _ask_of_ids(self, program: str, *words: str, wait_s: float | None = None) -> str:
        """Runs a command, accepting ids that Slurm has forgotten."""
        return self._ask(program, *words, is_fine=lambda output: _UNKNOWN_ID in output, wait_s=wait_s)

    def _ask(
        self,
        program: str,
        *words: str,
        stdin: str | None = None,
        base: Mapping[str, str] | None = None,
        is_fine: Callable[[str], bool] | None = None,
        wait_s: float | None = None,
    ) -> str:
        try:
            done = subprocess.run(
                [program, *words],
                input=stdin if stdin is not None else "",
                capture_output=True,
                text=True,
                errors="replace",
                env=base or _plain_environment(),
                timeout=wait_s or self._wait_s,
                check=False,
            )
        except FileNotFoundError:
            raise InputError(
                f"there is no {program} here",
                hint="Slurm's commands are on the login nodes of a cluster; a module may bring them",
            ) from None
        except subprocess.TimeoutExpired:
            raise PlacingError(f"{program} did not answer within {wait_s or self._wait_s:g}s") from None
        except OSError as error:
            raise PlacingError(f"{program} cannot be started: {error}") from error
        if done.returncode != 0 and not (is_fine and is_fine(done.stderr)):
            message = _complaint(done.stderr) or done.stdout.strip() or f"exit code {done.returncode}"
            message = message[-_LONGEST_MESSAGE:]
            if any(sign in message for sign in _UNREACHABLE):
                raise PlacingError(
                    f"Slurm cannot be reached: {message.splitlines()[-1]}",
                    hint="on a login node of the cluster: see `scontrol ping` and SLURM_CONF",
                )
            raise PlacingError(message if message.startswith(program) else f"{program}: {message}")
        return done.stdout


def _complaint(text: str) -> str:
    """Returns the message without the advice to read the manual."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("Try ")).strip()


def _submitters_environment() -> dict[str, str]:
    """Returns the environment for jobs, as far as --export passes it: nothing is added, and variables of an
    allocation around this process are removed. Slurm stores it, at some sites permanently and readable by
    others (`sacct --env-vars`): workers get the store's address in a file of their own."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_PREFIXES) and (name in _OF_THE_SITE or not name.startswith("SLURM"))
    }
    remove_passwords(env)
    return env


def _plain_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)}
    # Seconds since 1970: independent of time zone and the user's format.
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def _parts(ids: Iterable[str]) -> list[list[str]]:
    every = list(dict.fromkeys(ids))
    return [every[start : start + _IDS_A_CALL] for start in range(0, len(every), _IDS_A_CALL)]
