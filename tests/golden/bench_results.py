"""Results of benchmarks made by hand, the same every time."""

import random
from typing import Any

from joblens.analysis.comparing.bench import COMMANDS, TOOL, comparison_form, metrics_form

SYSTEM = {
    "hostname": "node7",
    "platform": "Linux-6.1",
    "cpu_model": "Some CPU",
    "usable_cpus": 8.0,
    "usable_memory_mb": 32000.0,
    "gpus": [],
    "load_1min": 0.25,
    "python_version": "3.11.7",
    "joblens_version": "0.1.0",
}


def runs_around(middle: float, count: int, seed: int, *, fails: bool = False) -> list[dict[str, Any]]:
    lot = random.Random(seed)
    return [
        {
            "run_number": number,
            "round": number,
            "status": "failed" if fails else "success",
            "success": not fails,
            "returncode": 3 if fails else 0,
            "error": "exit code 3" if fails else None,
            "start_time": "2026-11-15T10:00:00.000000+00:00",
            "duration_seconds": middle * lot.uniform(0.98, 1.03) * (3 if number == 4 else 1),
            "cpu_seconds": middle * 0.9 * lot.uniform(0.99, 1.01),
            "memory_peak_mb": 12.5,
            "io_read_mb": 0.0,
            "io_write_mb": 64.0,
            "resource_usage": {},
            "job_uuid": f"{seed}-{number}",
            "job_number": number,
        }
        for number in range(1, count + 1)
    ]


def two_commands(count: int = 12) -> dict[str, Any]:
    variants: list[dict[str, Any]] = []
    for name, command, middle in (("old", "sort big.txt", 1.5), ("new", "sort -S 1g <big.txt", 1.2)):
        runs = runs_around(middle, count, len(variants))
        variants.append(
            {
                "name": name,
                "command": [command] if "<" in command else command.split(),
                "is_shell": "<" in command,
                "metrics": metrics_form(runs),
                "runs": runs,
            }
        )
    return {
        "format": 1,
        "kind": COMMANDS,
        "id": "sort-20261115-100000-a1b2",
        "title": "sort",
        "created_time": "2026-11-15T10:00:00.000000+00:00",
        "system_info": SYSTEM,
        "disturbances": ["the machine was busy at the start: load 9.0 on 8 CPUs"],
        "rounds": count,
        "stopped": "precision",
        "failure": None,
        "confidence": 0.95,
        "baseline": "old",
        "variants": variants,
        "comparisons": [comparison_form(variants[1], variants[0], are_rounds=True)],
    }


def tool_result(*, fails: bool = False, middle: float = 2.0, seed: int = 5) -> dict[str, Any]:
    runs = runs_around(middle, 3, seed, fails=fails)
    return {
        "format": 1,
        "kind": TOOL,
        "id": f"solver-cpu-20261115-11000{seed}-c3d4",
        "title": "solver heat.py on cpu",
        "created_time": f"2026-11-15T11:00:0{seed}.000000+00:00",
        "tool": "solver",
        "script": "heat.py",
        "device": "cpu",
        "params": {"cells": 128},
        "command": ["python3", "heat.py"],
        "system_info": SYSTEM,
        "disturbances": [],
        "runs": runs,
        "metrics": metrics_form(runs),
        "error": "exit code 3" if fails else None,
    }
