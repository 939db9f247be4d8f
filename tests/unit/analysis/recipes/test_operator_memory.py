"""What operators need is learned from what they needed."""

from joblens.analysis.recipes.partition_sizing import ASSUMED_MEMORY, learn
from joblens.model.jobs.details import OperatorTable, OperatorUse
from joblens.model.values.units import MIB

BASE = ASSUMED_MEMORY.base_bytes


def table(partition_mb: int, **peaks_mb: int) -> OperatorTable:
    uses = tuple(
        OperatorUse(index=index, name=name, memory_peak_bytes=BASE + peak * MIB)
        for index, (name, peak) in enumerate(peaks_mb.items())
    )
    return OperatorTable(at_us=0, operators=uses, largest_partition_bytes=partition_mb * MIB)


def test_without_earlier_runs_something_is_assumed() -> None:
    assert learn([], ["a"]) == ASSUMED_MEMORY
    assert learn([table(64, other=1000)], ["a"]) == ASSUMED_MEMORY


def test_the_hungriest_operator_of_all_runs_counts() -> None:
    learned = learn([table(64, a=64, b=640), table(32, a=64, b=64)], ["a", "b"])
    assert round(learned.per_byte, 3) == 12.0
    assert learned.source == "measured in 2 earlier runs, most by b"


def test_frugal_operators_are_believed_when_all_of_them_were_measured() -> None:
    assert round(learn([table(64, a=160)], ["a", "a"]).per_byte, 3) == 3.0


def test_an_operator_that_was_never_measured_is_taken_to_need_what_is_assumed() -> None:
    learned = learn([table(64, a=64)], ["a", "b"])
    assert learned.per_byte == ASSUMED_MEMORY.per_byte
    assert learned.source == "assumed for b, which has not been measured yet"


def test_operators_that_decide_over_everything_say_nothing_about_a_partition() -> None:
    names = ["a", "document_deduplicator"]
    assert round(learn([table(64, a=160, document_deduplicator=6400)], names).per_byte, 3) == 3.0


def test_runs_on_small_partitions_say_nothing() -> None:
    assert learn([table(1, a=500)], ["a"]) == ASSUMED_MEMORY
