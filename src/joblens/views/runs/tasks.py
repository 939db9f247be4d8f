"""Queued jobs as text: status of one or several, and health of the queue, from TaskPipeline's forms."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from joblens.model.jobs.job import Status
from joblens.model.values.ids import short
from joblens.model.values.units import counted, format_bytes, format_duration, more
from joblens.views.text.numbers import UNKNOWN, percent
from joblens.views.text.style import Palette, clean
from joblens.views.text.table import Column, render_table

Form = Mapping[str, Any]

_MOST_ARTIFACTS = 10
_TAIL_LINES = 10
_TASK_COLUMNS = (
    Column("#", is_right=True),
    Column("ID"),
    Column("TASK", gives_way=True, keeps_end=True),
    Column("STATE"),
    Column("PROGRESS", is_right=True, goes=2),
    Column("TIME", is_right=True),
    Column("CODE", is_right=True, goes=1),
)
_WORKER_COLUMNS = (
    Column("WORKER", gives_way=True),
    Column("HOST", goes=2),
    Column("USER", goes=3),
    Column("QUEUES"),
    Column("LABEL"),
    Column("RUNNING", is_right=True),
    Column("SEEN", is_right=True, goes=1),
)
_QUEUE_COLUMNS = (
    Column("QUEUE"),
    Column("LABEL"),
    Column("WAITING", is_right=True),
    Column("HELD", is_right=True),
    Column("OLDEST", is_right=True),
)


# ---- one ---------------------------------------------------------------------------------------------------


def render_status(status: Form, *, paint: Palette) -> list[str]:
    lines = [
        f"Task: {status['task_id']}",
        f"   {task_text(status)}",
        f"   State: {_state(status, paint)}",
    ]
    if status["result"] is None:
        return [*lines, *_progress_lines(status)]
    return [*lines, *_ended(status["result"])]


def task_text(status: Form) -> str:
    words = [f"Tool: {clean(status['tool'])}"]
    if status["script"]:
        words.append(f"Script: {clean(status['script'])}")
    if status["params"]:
        words.append("Parameters: " + ", ".join(f"{k}={_value(v)}" for k, v in status["params"].items()))
    return ", ".join(words)


def _value(value: Any) -> str:
    """Returns the value as typed: true, not True."""
    return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _state(status: Form, paint: Palette) -> str:
    word = Status(status["status"])
    return f"{status['state']} ({paint.status(word)})"


def _progress_lines(status: Form) -> list[str]:
    placement = status.get("placement")
    if placement:
        lines = [f"   Cluster: {clean(_placed(placement))}"]
    else:
        label = f", for workers with the label '{clean(status['label'])}'" if status["label"] else ""
        lines = [f"   Queue: {status['queue']}{label}"] if status["queue"] else []
    if status.get("waits_for"):
        lines.append(f"   Waits: {clean(status['waits_for'])}")
    if status["worker"]:
        lines.append(f"   Worker: {clean(status['worker'])} on {clean(status['host'] or UNKNOWN)}")
    if status["elapsed_seconds"] is None:
        return lines
    return [*lines, f"   Progress: {progress_text(status)}", *_so_far(status)]


def _placed(placement: Form) -> str:
    ident = placement.get("job_id", "")
    what = f"{placement['engine']} job {ident}" if ident else str(placement["engine"])
    if "waits" in placement:
        return f"waits at {what}" + (f": {placement['waits']}" if placement["waits"] else "")
    nodes = ", ".join(placement.get("nodes", ()))
    return f"{what} on {nodes}" if nodes else what


def progress_text(status: Form) -> str:
    """Returns '42% (12s of about 29s)', or only the elapsed time without earlier runs."""
    elapsed = format_duration(status["elapsed_seconds"])
    if status["expected_seconds"] is None:
        return f"{elapsed} so far; no earlier success to compare with"
    usual = format_duration(status["expected_seconds"])
    if status["progress"] is None:
        return f"{elapsed} so far; usually about {usual}"
    return f"{percent(status['progress'])} ({elapsed} of about {usual})"


def _so_far(status: Form) -> list[str]:
    usage = status.get("usage_so_far")
    if usage is None:
        return []
    cpu, memory = usage["cpu_total_seconds"], usage["memory_mb"]
    shown = UNKNOWN if memory is None else format_bytes(memory * 2**20)
    return [f"   So far: CPU time {format_duration(cpu)}, memory {shown}"]


def _ended(result: Form) -> list[str]:
    usage = result["resource_usage"]
    memory = usage["memory_peak_mb"]
    lines = [
        f"   Return code: {UNKNOWN if result['returncode'] is None else result['returncode']}",
        f"   Duration: {format_duration(result['duration_seconds'])}",
        f"   CPU time: {format_duration(usage['cpu_total_seconds'])}",
        f"   Memory peak: {UNKNOWN if memory is None else format_bytes(memory * 2**20)}",
    ]
    if result["worker"]:
        again = f", attempt {result['attempt']}" if result["attempt"] > 1 else ""
        lines.append(f"   Worker: {clean(result['worker'])}{again}")
    lines += _artifacts(result)
    if result["error"]:
        lines.append(f"   Error: {clean(result['error'])}")
    lines += _tail("Output", result["stdout"])
    if result["status"] != Status.SUCCESS:
        lines += _tail("Standard error", result["stderr"])
    lines += [f"   {finding['severity']}: {clean(finding['text'])}" for finding in result["findings"]]
    if result["status"] != Status.SUCCESS and result["attempt"]:
        lines.append(f"   Full output: joblens logs {short(result['task_id'])}")
    return lines


def _artifacts(result: Form) -> list[str]:
    found: Sequence[Form] = result["artifacts"]
    if not found:
        return []
    where = f" in {clean(result['work_dir'])}" if result["work_dir"] else ""
    lines = [f"   Artifacts{where}:"]
    lines += [
        f"      {clean(each['path'])}  {format_bytes(each['bytes'])}" for each in found[:_MOST_ARTIFACTS]
    ]
    if len(found) > _MOST_ARTIFACTS:
        lines.append(f"      {more(len(found) - _MOST_ARTIFACTS)}")
    return lines


def _tail(title: str, text: str) -> list[str]:
    tail = [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
    return [f"   {title}:", *(f"      {clean(line)}" for line in tail)] if tail else []


def live_line(status: Form) -> str:
    """Returns the live line for a terminal."""
    words = f"{short(status['task_id'])}  {status['state']}"
    return words if status["elapsed_seconds"] is None else f"{words}  {progress_text(status)}"


# ---- several ----------------------------------------------------------------------------------------------


def render_workflow(status: Form, *, width: int, paint: Palette) -> list[str]:
    rows = [_task_row(number, task, paint) for number, task in enumerate(status["tasks"], start=1)]
    return [*render_table(_TASK_COLUMNS, rows, width, paint), "", workflow_text(status)]


def workflow_text(status: Form) -> str:
    """Returns '3 tasks: 1 completed, 1 running, 1 pending'."""
    words = ("completed", "failed", "cancelled", "running", "pending")
    counts = [f"{status[word]} {word}" for word in words if status[word]]
    return f"{counted(status['total'], 'task')}: {', '.join(counts) or 'none'}"


def _task_row(number: int, task: Form, paint: Palette) -> list[str]:
    result = task["result"]
    code = None if result is None else result["returncode"]
    elapsed = task["elapsed_seconds"]
    params = " ".join(f"{name}={_value(value)}" for name, value in task["params"].items())
    words = (task["tool"], os.path.basename(task["script"]), params)
    return [
        str(number),
        short(task["task_id"]),
        clean(" ".join(word for word in words if word)),
        _state(task, paint),
        percent(task["progress"]),
        format_duration(elapsed),
        UNKNOWN if code is None else str(code),
    ]


# ---- the queue --------------------------------------------------------------------------------------------


def render_health(health: Form, *, width: int, paint: Palette) -> list[str]:
    store, broker = health["store"], health["broker"]
    unseen = "not checked: only the store knows the workers"
    answer = unseen if broker["ok"] is None else clean(broker["answer"] or broker["url"] or UNKNOWN)
    new = " (does not exist yet; the first job creates it)" if store["ok"] and store["new"] else ""
    lines = [
        f"Store:   {_mark(ok=store['ok'], paint=paint)}  {clean(store['url'])}{new}",
        f"Broker:  {_mark(ok=broker['ok'], paint=paint)}  {answer}",
        f"Workers: {len(health['workers']) or 'none'}",
    ]
    if health["workers"]:
        rows = [_worker_row(worker) for worker in health["workers"]]
        lines += ["", *_with_used_labels(_WORKER_COLUMNS, rows, width, paint)]
    if health["backlog"]:
        rows = [_queue_row(each) for each in health["backlog"]]
        lines += ["", *_with_used_labels(_QUEUE_COLUMNS, rows, width, paint)]
    if health["problems"]:
        lines += ["", *(f"{paint.paint('down', 'red')}  {clean(text)}" for text in health["problems"])]
    return lines


def _with_used_labels(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, paint: Palette
) -> list[str]:
    """Omits the column of labels if there are none."""
    indexes = [
        index
        for index, column in enumerate(columns)
        if column.title != "LABEL" or any(row[index] != UNKNOWN for row in rows)
    ]
    return render_table(columns, rows, width, paint, indexes=indexes)


def _mark(*, ok: bool | None, paint: Palette) -> str:
    if ok is None:
        return "?   "
    return paint.paint("ok  ", "green") if ok else paint.paint("down", "red")


def _worker_row(worker: Form) -> list[str]:
    return [
        clean(worker["name"]),
        clean(worker["host"]),
        "any user" if worker["any_user"] else clean(worker["user"]),
        ",".join(worker["queues"]),
        clean(", ".join(worker["labels"])) or UNKNOWN,
        f"{worker['running']}/{worker['concurrency']}",
        f"{worker['seen_seconds_ago']:.0f}s ago",
    ]


def _queue_row(each: Form) -> list[str]:
    oldest = format_duration(each["oldest_waiting_seconds"]) if each["waiting"] else UNKNOWN
    return [each["queue"], clean(each["label"]) or UNKNOWN, str(each["waiting"]), str(each["held"]), oldest]
