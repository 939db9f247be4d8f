"""Options of sbatch as people write them, by their long names; which of them joblens decides itself."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from joblens.model.errors import InputError

Options = dict[str, str]  # by long name, with dashes; '': it takes no value

_SHORT = {
    "A": "account", "B": "extra-node-info", "C": "constraint", "c": "cpus-per-task", "d": "dependency",
    "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "i": "input", "J": "job-name",
    "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks",
    "O": "overcommit", "o": "output", "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_FLAGS = frozenset(
    (
        *("contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "no-kill", "no-requeue"),
        *("overcommit", "oversubscribe", "parsable", "quiet", "reboot", "requeue", "spread-job", "stepmgr"),
        *("test-only", "use-min-nodes", "verbose", "wait"),
    )
)

# What it would do to have them otherwise.
DECIDED_HERE = {
    "array": "jobs of a sweep go into arrays by themselves",
    "chdir": "every job has its own working directory",
    "cluster": "a run has one cluster: choose it with SLURM_CLUSTERS or SLURM_CONF",
    "clusters": "a run has one cluster: choose it with SLURM_CLUSTERS or SLURM_CONF",
    "comment": "it says which run it is",
    "error": "what jobs print goes where the run's output goes",
    "input": "jobs read nothing",
    "job-name": "it is the name of the job",
    "name": "it is the name of the job",
    "nodes": "num_nodes of the job, nodes of the scheduler and --nodes say that",
    "no-requeue": "jobs that were lost are placed again by joblens",
    "open-mode": "what jobs print goes where the run's output goes",
    "output": "what jobs print goes where the run's output goes",
    "parsable": "joblens reads what sbatch prints",
    "quiet": "joblens reads what sbatch prints",
    "requeue": "jobs that were lost are placed again by joblens",
    "signal": "workers are told in time by sigkill_headroom_seconds",
    "test-only": "joblens run --dry-run shows what would run",
    "verbose": "joblens reads what sbatch prints",
    "wait": "joblens run waits, joblens submit does not",
    "wrap": "jobs have their own commands",
}

# What is compared with what Slurm says it has before anything is asked for.
CHECKED_WORDS = frozenset({"nodes", "cpus-per-task", "ntasks-per-node", "mem", "time", "gres", "partition"})

_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_GPUS = frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task"})
_RIVALS = {name: group - {name} for group in (_MEMORY, _GPUS) for name in group}


def read_words(words: Sequence[str]) -> Options:
    """'--constraint=ib', '--constraint ib', '-C ib', '-Cib', '--exclusive'. Raises InputError."""
    options: Options = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            has_value = bool(equals)
        elif word.startswith("-") and word[1:2] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=")
            has_value = bool(value)
        else:
            raise InputError(f"'{word}' is no option of sbatch", hint="write them as --constraint=ib")
        if not has_value and name not in _FLAGS and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        options[name] = value
    return options


def read_text(text: str) -> Options:
    """Several options in one text, as in `extra` of a scheduler."""
    try:
        return read_words(shlex.split(text))
    except ValueError as error:
        raise InputError(f"'{text}' cannot be read as options of sbatch: {error}") from error


def read_texts(texts: Iterable[str]) -> Options:
    """Of the command line: each is one option, with its value."""
    return {name: value for text in texts for name, value in read_text(text).items()}


def read_defaults(defaults: Mapping[str, Any]) -> Options:
    """`slurm_defaults`: what is false is left out."""
    options: Options = {}
    for name, value in defaults.items():
        if value is not None and value is not False:
            options[name.replace("_", "-")] = "" if value is True else str(value)
    return options


def merged(*layers: Mapping[str, str]) -> Options:
    """Later ones win, also over an option that says the same in other words (--mem, --mem-per-cpu)."""
    options: Options = {}
    for layer in layers:
        for name, value in layer.items():
            for rival in _RIVALS.get(name, ()):
                if rival not in layer:
                    options.pop(rival, None)
            options[name] = value
    return options


def as_arguments(options: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]
