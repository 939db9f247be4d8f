"""A line of a history file as Keystone writes it."""

from typing import Any

KEYSTONE_RECORD: dict[str, Any] = {
    "task_id": "abc-123-xyz",
    "tool": "fenicsx",
    "script": "poisson.py",
    "params": {"mesh_size": 64},
    "start_time": "2025-10-15T10:30:00.000000",
    "end_time": "2025-10-15T10:35:30.123456",
    "duration_seconds": 330.12,
    "status": "success",
    "returncode": 0,
    "resource_usage": {
        "cpu_user_seconds": 285.45,
        "cpu_system_seconds": 12.34,
        "cpu_total_seconds": 297.79,
        "memory_peak_mb": 2048.56,
    },
    "error": None,
    "has_result": True,
}
KEYSTONE_KEYS = list(KEYSTONE_RECORD)
