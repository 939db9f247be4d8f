"""Job folders of recipes, read from disk: those of DataJuicer as it wrote them, and what befalls files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.app.recipes.snapshots import LiveSnapshot
from joblens.model.errors import InputError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "recipes"
NO_PROCESS = 4_194_399  # above the largest number the kernel gives

DOCUMENT_SECTIONS = [
    "job_info",
    "overall_status",
    "overall_progress",
    "timing",
    "progress_summary",
    "checkpointing",
    "partition_progress",
    "operation_progress",
    "resources",
    "file_paths",
    "metadata",
]
DOCUMENT_KEYS: dict[str, list[str]] = {
    "job_info": [
        "job_id",
        "executor_type",
        "status",
        "config_file",
        "work_dir",
        "resumption_command",
        "error_message",
    ],
    "overall_progress": ["overall_percentage", "partition_percentage", "operation_percentage"],
    "timing": [
        "start_time",
        "end_time",
        "duration_seconds",
        "duration_formatted",
        "job_summary_duration",
        "timing_source",
    ],
    "progress_summary": [
        "total_partitions",
        "completed_partitions",
        "failed_partitions",
        "in_progress_partitions",
        "partition_progress_percentage",
        "total_operations",
        "completed_operations",
        "failed_operations",
        "checkpointed_operations",
        "operation_progress_percentage",
    ],
    "checkpointing": [
        "strategy",
        "last_checkpoint_time",
        "checkpointed_operations_count",
        "resumable",
        "checkpoint_progress",
        "checkpoint_dir",
    ],
    "file_paths": [
        "event_log_file",
        "event_log_dir",
        "checkpoint_dir",
        "metadata_dir",
        "backed_up_config_path",
    ],
    "metadata": [
        "snapshot_generated_at",
        "events_analyzed",
        "dag_plan_loaded",
        "job_summary_loaded",
        "job_summary_used",
    ],
}


def datajuicer_job(name: str, tmp_path: Path) -> str:
    """A recorded folder, with the checkpoints that its events tell of."""
    folder = tmp_path / name
    shutil.copytree(FIXTURES / f"datajuicer-{name}", folder)
    for log in folder.glob("events_*.jsonl"):
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["event_type"] == "checkpoint_save":
                kept = Path(event["metadata"]["checkpoint_path"]).name
                (folder / "checkpoints" / kept).mkdir(parents=True, exist_ok=True)
    return str(folder)


def write_events(path: Path, *events: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def event(event_type: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"event_type": event_type, "timestamp": at, "process_id": NO_PROCESS, **fields}


class TestDataJuicer:
    def test_a_finished_job_is_complete(self, tmp_path: Path) -> None:
        snapshot = joblens.create_snapshot(datajuicer_job("finished", tmp_path))
        assert snapshot.overall_status.value == "completed"
        assert (snapshot.completed_partitions, snapshot.total_partitions) == (3, 3)
        assert (snapshot.completed_operations, snapshot.total_operations) == (15, 15)
        assert snapshot.checkpoint_strategy == "every_op"  # its events do not tell: the recipe does
        assert snapshot.resumable
        assert snapshot.operators[3].input_rows == 240

    def test_a_failed_job_is_failed_and_tells_where(self, tmp_path: Path) -> None:
        snapshot = joblens.create_snapshot(datajuicer_job("failed", tmp_path))
        assert snapshot.overall_status.value == "failed"
        assert snapshot.failed_partitions == 1
        failed = [one for one in snapshot.partition_statuses.values() if one.status == "failed"]
        assert [one.failed_operations for one in failed] == [("slow_mapper",)]
        assert "this text may not be here" in (snapshot.error_message or "")

    def test_a_killed_job_is_killed(self, tmp_path: Path) -> None:
        snapshot = joblens.create_snapshot(datajuicer_job("killed", tmp_path))
        assert snapshot.overall_status.value == "killed"
        assert 7 <= snapshot.completed_operations < snapshot.total_operations == 18
        assert snapshot.resumable
        assert snapshot.job_end_time is None

    def test_a_job_that_was_gone_on_with_is_read_from_its_beginning(self, tmp_path: Path) -> None:
        killed = joblens.create_snapshot(datajuicer_job("killed", tmp_path))
        resumed = joblens.create_snapshot(datajuicer_job("resumed", tmp_path))
        assert resumed.overall_status.value == "completed"
        assert resumed.runs == 2
        assert resumed.completed_operations == resumed.total_operations == 18
        assert resumed.job_start_time == killed.job_start_time
        first = resumed.operation_statuses["p0_op0_clean_links_mapper"]
        assert first.input_rows == 80

    def test_operators_on_all_partitions_are_counted_once(self, tmp_path: Path) -> None:
        snapshot = joblens.create_snapshot(datajuicer_job("global", tmp_path))
        assert snapshot.overall_status.value == "completed"
        assert (snapshot.completed_operations, snapshot.total_operations) == (17, 17)
        assert [one.is_global for one in snapshot.operators] == [False] * 5 + [True] * 2

    def test_without_its_checkpoints_a_job_cannot_be_gone_on_with(self, tmp_path: Path) -> None:
        folder = datajuicer_job("killed", tmp_path)
        shutil.rmtree(os.path.join(folder, "checkpoints"))
        assert not joblens.create_snapshot(folder).resumable


class TestAugust:
    """One events.jsonl, a summary, and partitions that are told of when they are made."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = tmp_path / "20250809_040053_a001de"
        folder.mkdir()
        at = 1754712053.5
        events = [event("job_start", at, metadata={"checkpoint_strategy": "every_op"}, total_partitions=2)]
        for partition in (0, 1):
            events += [
                event("partition_creation_start", at + 1, partition_id=partition),
                event(
                    "partition_creation_complete",
                    at + 2,
                    partition_id=partition,
                    metadata={"sample_count": 20000},
                ),
                event("partition_start", at + 3, partition_id=partition),
                event(
                    "op_start",
                    at + 3,
                    partition_id=partition,
                    operation_idx=0,
                    operation_name="clean_links_mapper",
                ),
                event(
                    "op_complete",
                    at + 4,
                    partition_id=partition,
                    operation_idx=0,
                    operation_name="clean_links_mapper",
                    metadata={"input_rows": 20000, "output_rows": 19363},
                ),
                event("partition_complete", at + 5, partition_id=partition),
            ]
        write_events(folder / "events.jsonl", *events, event("job_complete", at + 6))
        summary = {
            "job_id": folder.name,
            "start_time": 1754712053.0,
            "end_time": 1754712324.8,
            "duration": 271.8,
            "executor_type": "ray_partitioned",
            "status": "completed",
            "config_file": ["demo.yaml"],
            "work_dir": "./outputs/job",
            "resumption_command": "dj-process --config demo.yaml --job_id x",
        }
        (folder / "job_summary.json").write_text(json.dumps(summary))
        return folder

    def test_the_document_has_every_key_and_nothing_but_resources_beside_them(self, folder: Path) -> None:
        analyzer = joblens.ProcessingSnapshotAnalyzer(str(folder))
        form = analyzer.to_json_dict(analyzer.generate_snapshot())
        assert list(form) == DOCUMENT_SECTIONS
        for section, keys in DOCUMENT_KEYS.items():
            assert list(form[section]) == keys, section
        assert list(form["checkpointing"]["checkpoint_progress"]) == [
            "percentage",
            "checkpointed_operations",
            "checkpoint_coverage",
        ]
        assert list(form["partition_progress"]["0"]) == [
            "status",
            "sample_count",
            "creation_start_time",
            "creation_end_time",
            "processing_start_time",
            "processing_end_time",
            "current_operation",
            "completed_operations",
            "failed_operations",
            "checkpointed_operations",
            "error_message",
            "progress_percentage",
        ]
        assert list(form["operation_progress"]["p0_op0_clean_links_mapper"]) == [
            "operation_name",
            "operation_idx",
            "status",
            "start_time",
            "end_time",
            "duration",
            "input_rows",
            "output_rows",
            "checkpoint_time",
            "error_message",
            "progress_percentage",
        ]

    def test_the_summary_gives_the_times_and_the_words(self, folder: Path) -> None:
        live = LiveSnapshot(str(folder))
        form = live.json_dict(live.refresh())
        assert form["timing"] == {
            "start_time": 1754712053.0,
            "end_time": 1754712324.8,
            "duration_seconds": 271.8,
            "duration_formatted": "4m 31s",
            "job_summary_duration": 271.8,
            "timing_source": "job_summary",
        }
        assert form["job_info"]["resumption_command"] == "dj-process --config demo.yaml --job_id x"
        assert form["partition_progress"]["1"]["sample_count"] == 20000

    def test_the_document_in_pieces_is_the_same(self, folder: Path) -> None:
        live = LiveSnapshot(str(folder))
        snapshot = live.refresh()
        assert json.loads(b"".join(live.json_pieces(snapshot))) == live.json_dict(snapshot)

    def test_the_attributes_that_dashboards_read_are_there(self, folder: Path) -> None:
        snapshot = joblens.create_snapshot(str(folder))
        assert snapshot.job_id == folder.name
        assert snapshot.overall_status.value == "completed"
        assert f"{snapshot.completed_partitions}/{snapshot.total_partitions}" == "2/2"
        assert f"{snapshot.completed_operations}/{snapshot.total_operations}" == "2/2"
        assert (snapshot.total_duration, snapshot.job_start_time) == (271.8, 1754712053.0)
        assert (snapshot.resumable, snapshot.checkpoint_strategy) == (False, "every_op")


class TestFiles:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        return tmp_path / "events.jsonl"

    def test_only_what_is_new_is_read_again(self, log: Path, tmp_path: Path) -> None:
        write_events(log, event("job_start", 1.0), event("partition_start", 2.0, partition_id=0))
        live = LiveSnapshot(str(tmp_path))
        assert live.refresh().events_analyzed == 2
        write_events(log, event("partition_complete", 3.0, partition_id=0))
        snapshot = live.refresh()
        assert (snapshot.events_analyzed, snapshot.completed_partitions) == (3, 1)
        assert live.refresh().events_analyzed == 3

    def test_a_log_that_is_replaced_is_read_from_its_beginning(self, log: Path, tmp_path: Path) -> None:
        write_events(log, event("job_start", 1.0), event("partition_complete", 2.0, partition_id=0))
        live = LiveSnapshot(str(tmp_path))
        assert live.refresh().completed_partitions == 1
        log.unlink()
        write_events(log, event("job_start", 1.0))
        snapshot = live.refresh()
        assert (snapshot.events_analyzed, snapshot.completed_partitions) == (1, 0)

    def test_lines_that_are_no_events_are_counted_and_others_read(self, log: Path, tmp_path: Path) -> None:
        write_events(log, event("job_start", 1.0))
        with log.open("ab") as file:
            file.write(b'{"event_type": "op_st\n[1, 2]\n\xff\xfe\n\n')
        write_events(log, event("partition_complete", 2.0, partition_id=0))
        snapshot = joblens.create_snapshot(str(tmp_path))
        assert (snapshot.events_analyzed, snapshot.malformed_lines) == (2, 3)
        assert snapshot.completed_partitions == 1

    def test_an_event_with_an_odd_field_is_taken_without_it(self, log: Path, tmp_path: Path) -> None:
        odd = event("partition_complete", 2.0, partition_id="0", duration=[], metadata={"input_rows": {}})
        write_events(log, event("job_start", 1.0), odd)
        snapshot = joblens.create_snapshot(str(tmp_path))
        assert (snapshot.completed_partitions, snapshot.malformed_lines) == (1, 0)

    def test_numbers_that_cannot_be_are_damage(self, log: Path, tmp_path: Path) -> None:
        write_events(
            log,
            event("job_start", 1e300),
            event("partition_complete", 2.0, partition_id=2**63),
            event("partition_complete", 2.0, partition_id=-1),
            event("op_complete", 2.0, partition_id=0, operation_name="a_mapper", input_rows=-5, duration=-1),
        )
        snapshot = joblens.create_snapshot(str(tmp_path))
        assert snapshot.malformed_lines == 1  # the one without a time
        assert (snapshot.total_partitions, snapshot.completed_partitions) == (1, 0)
        assert (snapshot.operators[0].input_rows, snapshot.operators[0].duration_seconds) == (None, 0.0)
        assert snapshot.overall_status.value == "killed"  # by the process that other events name

    def test_a_log_that_cannot_be_read_is_bad_input(self, log: Path, tmp_path: Path) -> None:
        log.mkdir()
        with pytest.raises(InputError, match=r"events\.jsonl cannot be read: not a plain file"):
            joblens.create_snapshot(str(tmp_path))

    def test_half_a_line_is_waited_for_while_the_job_runs(self, log: Path, tmp_path: Path) -> None:
        whole = json.dumps(event("partition_complete", time.time(), partition_id=0)) + "\n"
        write_events(log, {**event("job_start", time.time()), "process_id": os.getpid()})
        with log.open("a") as file:
            file.write(whole[:20])
        live = LiveSnapshot(str(tmp_path))
        assert live.refresh().malformed_lines == 0
        with log.open("a") as file:
            file.write(whole[20:])
        snapshot = live.refresh()
        assert (snapshot.completed_partitions, snapshot.malformed_lines) == (1, 0)

    def test_half_a_line_of_a_dead_job_could_not_be_read(self, log: Path, tmp_path: Path) -> None:
        write_events(log, event("job_start", 1.0))
        with log.open("a") as file:
            file.write('{"event_type": "op_st')
        live = LiveSnapshot(str(tmp_path))
        assert live.refresh().malformed_lines == live.refresh().malformed_lines == 1
        with log.open("a") as file:  # somebody lives after all
            file.write('art", "timestamp": 2.0}\n')
        snapshot = live.refresh()
        assert (snapshot.malformed_lines, snapshot.events_analyzed) == (0, 2)

    def test_a_live_process_of_the_same_number_that_started_later_is_not_the_job(
        self, log: Path, tmp_path: Path
    ) -> None:
        write_events(log, {**event("job_start", time.time() - 7 * 86400), "process_id": os.getpid()})
        assert joblens.create_snapshot(str(tmp_path)).overall_status.value == "killed"

    def test_a_live_process_that_wrote_the_events_is_the_job(self, log: Path, tmp_path: Path) -> None:
        write_events(log, {**event("job_start", time.time()), "process_id": os.getpid()})
        snapshot = joblens.create_snapshot(str(tmp_path))
        assert (snapshot.overall_status.value, snapshot.process_id) == ("in_progress", os.getpid())

    def test_a_job_that_writes_no_events_is_known_by_its_summary(self, log: Path, tmp_path: Path) -> None:
        log.touch()
        (tmp_path / "recipe.yaml").write_text("process: [{clean_links_mapper: {}}]")
        nodes = {f"op_001_clean_links_mapper_partition_{number}" for number in range(3)}
        plan = {"nodes": {node: {"node_id": node} for node in nodes}}
        (tmp_path / "dag_execution_plan.json").write_text(json.dumps(plan))
        summary = {"status": "completed", "start_time": 1.0, "end_time": 3.0, "duration": 2.0}
        (tmp_path / "job_summary.json").write_text(json.dumps(summary))
        snapshot = joblens.create_snapshot(str(tmp_path))
        assert snapshot.overall_status.value == "completed"
        assert (snapshot.completed_operations, snapshot.total_operations) == (3, 3)
        assert (snapshot.completed_partitions, snapshot.total_duration) == (3, 2.0)

    def test_a_folder_that_is_no_job_is_refused_with_the_jobs_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "job_1").mkdir()
        write_events(tmp_path / "job_1" / "events.jsonl", event("job_start", 1.0))
        with pytest.raises(InputError) as refused:
            LiveSnapshot(str(tmp_path))
        assert "job_1" in refused.value.hint


_SLOW = """\
import time

import joblens


@joblens.operator
def slow_mapper(row):
    time.sleep(0.02)
    return row
"""


class TestOwnJobs:
    @pytest.fixture
    def recipe(self, tmp_path: Path) -> Path:
        pytest.importorskip("pyarrow")
        rows = [{"text": f"page {number} of the book"} for number in range(60)]
        (tmp_path / "pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "operators").mkdir()
        (tmp_path / "operators" / "slow.py").write_text(_SLOW)
        recipe = {
            "dataset_path": str(tmp_path / "pages.jsonl"),
            "export_path": str(tmp_path / "out.jsonl"),
            "work_dir": str(tmp_path / "jobs"),
            "np": 1,
            "partition": {"mode": "manual", "num_of_partitions": 2},
            "checkpoint": {"strategy": "every_op"},
            "custom_operator_paths": [str(tmp_path / "operators")],
            "process": [{"clean_links_mapper": {}}, {"slow_mapper": {}}, {"document_deduplicator": {}}],
        }
        (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
        return tmp_path / "recipe.yaml"

    def command(self, recipe: Path, *more: str) -> list[str]:
        store = str(recipe.parent / "store.db")
        return [sys.executable, "-m", "joblens", "--store", store, "process", str(recipe), "-q", *more]

    def test_a_job_is_followed_through_its_death_and_its_second_run(self, recipe: Path) -> None:
        folder = recipe.parent / "jobs" / "job_1"
        with subprocess.Popen(
            self.command(recipe, "--job-id", "job_1"), stderr=subprocess.DEVNULL
        ) as process:
            live = wait_for_saved(folder, process)
            snapshot = live.refresh()
            assert snapshot.overall_status.value == "in_progress"
            assert snapshot.is_alive
            assert snapshot.process_id is not None
            os.kill(snapshot.process_id, signal.SIGKILL)
            process.wait()
        killed = live.refresh()
        assert killed.overall_status.value == "killed"
        assert 0 < killed.completed_operations < killed.total_operations == 5
        assert killed.resumable
        done = run(*self.command(recipe, "--resume", "job_1"))
        assert done.returncode == 0, done.stderr
        resumed = live.refresh()
        assert resumed.overall_status.value == "completed"
        assert (resumed.runs, resumed.completed_operations) == (2, 5)
        assert (resumed.operators[1].input_rows, resumed.operators[2].output_rows) == (60, 60)
        assert resumed.operators[1].cpu_seconds is not None
        assert joblens.create_snapshot(str(folder)).completed_operations == 5

    def test_a_job_is_stopped_and_can_be_gone_on_with(self, recipe: Path) -> None:
        folder = recipe.parent / "jobs" / "job_1"
        with subprocess.Popen(
            self.command(recipe, "--job-id", "job_1"), stderr=subprocess.DEVNULL
        ) as process:
            live = wait_for_saved(folder, process)
            stopped = joblens.JobUtils(str(folder)).stop()
            assert (stopped.success, stopped.was_running) == (True, True)
            process.wait()
        snapshot = live.refresh()
        assert snapshot.overall_status.value == "stopped"
        assert snapshot.resumable


def wait_for_saved(folder: Path, process: subprocess.Popen[bytes]) -> LiveSnapshot:
    """Until the job has kept something, and is not through yet."""
    while process.poll() is None:
        log = folder / "events.jsonl"
        if log.exists() and b"checkpoint_save" in log.read_bytes():
            return LiveSnapshot(str(folder))
        time.sleep(0.01)
    raise AssertionError("the job has ended already")


class TestCommands:
    def test_the_module_prints_the_document(self, tmp_path: Path) -> None:
        folder = datajuicer_job("finished", tmp_path)
        done = run(sys.executable, "-m", "joblens.snapshot", folder)
        assert done.returncode == 0, done.stderr
        form = json.loads(done.stdout)
        assert form["overall_status"] == "completed"
        assert form["overall_progress"]["overall_percentage"] == 100.0

    def test_people_read_words(self, tmp_path: Path) -> None:
        folder = datajuicer_job("failed", tmp_path)
        done = run(sys.executable, "-m", "joblens.snapshot", folder, "--human-readable")
        assert "failed  failed" in done.stdout
        assert "ValueError: this text may not be here: me100@" in done.stdout

    def test_a_folder_that_is_not_there_is_bad_input(self, tmp_path: Path) -> None:
        done = run(sys.executable, "-m", "joblens.snapshot", str(tmp_path / "nowhere"))
        assert (done.returncode, done.stdout) == (2, "")
        assert "there is no job directory" in done.stderr

    def test_watching_a_job_that_is_over_ends_at_once(self, tmp_path: Path) -> None:
        folder = datajuicer_job("killed", tmp_path)
        done = run(sys.executable, "-m", "joblens", "snapshot", folder, "--watch")
        (line,) = done.stdout.splitlines()
        assert json.loads(line)["overall_status"] == "killed"

    @pytest.mark.parametrize("text", ["", "garbage\n"])
    def test_watching_a_log_that_tells_of_no_job_ends_at_once(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "events.jsonl").write_text(text)
        done = run(sys.executable, "-m", "joblens", "snapshot", str(tmp_path), "--watch")
        assert json.loads(done.stdout)["overall_status"] == "not_started"

    def test_a_list_is_not_watched(self, tmp_path: Path) -> None:
        done = run(sys.executable, "-m", "joblens", "snapshot", str(tmp_path), "--list", "--watch")
        assert (done.returncode, done.stdout) == (2, "")
        assert "--list and --watch cannot be combined" in done.stderr

    def test_jobs_of_a_folder_are_listed(self, tmp_path: Path) -> None:
        for name in ("finished", "killed"):
            datajuicer_job(name, tmp_path)
        done = run(sys.executable, "-m", "joblens", "snapshot", str(tmp_path), "--list", "--json")
        statuses = {job["job_id"]: job["status"] for job in json.loads(done.stdout)}
        assert statuses == {"finished": "completed", "killed": "killed"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
