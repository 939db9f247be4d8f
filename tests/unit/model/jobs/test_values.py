import msgspec
import pytest

from joblens.model.errors import JoblensError, UnknownJob
from joblens.model.history import Distribution, GroupStatistics
from joblens.model.jobs.job import Attempt, Job, Owner, Record, Status, Usage
from joblens.model.jobs.sample import SAMPLE_COLUMNS, DeviceIo, Sample


def test_only_queued_and_running_are_not_final() -> None:
    assert {status for status in Status if not status.is_final} == {Status.QUEUED, Status.RUNNING}


def test_an_error_without_a_message_says_what_its_kind_is() -> None:
    assert str(UnknownJob()) == "No job has that id."
    assert UnknownJob().exit_code == 2


def test_an_error_carries_what_to_do_next() -> None:
    assert JoblensError("it broke", hint="mend it").hint == "mend it"


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Usage().cpu_total_usec = 5  # type: ignore[misc]


def test_a_record_survives_json() -> None:
    owner = Owner(host="h", pid=1, start_ticks=2, boot_id="b")
    record = Record(
        number=3,
        status=Status.RUNNING,
        job=Job(uuid="u", argv=("true",), created_at_us=1),
        attempt=Attempt(started_at_us=2, owner=owner),
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record


def test_unknown_numbers_of_a_sample_take_no_room() -> None:
    assert msgspec.json.encode(Sample(at_us=1, elapsed_us=2)) == b'{"at_us":1,"elapsed_us":2}'


def test_a_sample_with_devices_survives_json() -> None:
    sample = Sample(at_us=1, elapsed_us=2, cpu_total_usec=0, devices={"8:0": DeviceIo(read_bytes=5)})
    assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample


def test_time_comes_first_in_the_storage_order() -> None:
    assert SAMPLE_COLUMNS[:3] == ("at_us", "elapsed_us", "cpu_total_usec")


def test_the_share_of_successes_of_no_jobs_is_zero() -> None:
    assert GroupStatistics().success_percent == 0.0
    assert GroupStatistics(jobs=4, by_status={"success": 3, "lost": 1}).success_percent == 75.0
    assert GroupStatistics(jobs=4, by_status={"success": 3, "lost": 1}).unsuccessful == 1


def test_an_empty_distribution_knows_no_mean() -> None:
    assert Distribution().mean is None
