from joblens.model.jobs.details import GpuFacts
from joblens.probes.gpu.drm_sysfs import Card
from joblens.probes.gpu.intel_gpu_top import IntelGpuTop, parse_gpu_top, split_objects
from tests.unit.probes.gpu_trees import FIXTURES

CARD = Card(
    facts=GpuFacts(id="0000:00:02.0", vendor="intel", index=0),
    directory="/sys/class/drm/card1",
    nodes=frozenset({"card1", "renderD129"}),
)
PRINTED = FIXTURES / "intel_gpu_top.json"


def test_whole_objects_are_taken_from_an_endless_list() -> None:
    objects, rest = split_objects(PRINTED.read_text())
    assert len(objects) == 2
    assert rest.startswith("{")
    assert split_objects("[\n") == ([], "")


def test_a_gpu_is_as_busy_as_its_busiest_engine() -> None:
    objects, _ = split_objects(PRINTED.read_text())
    assert parse_gpu_top(objects[-1]) == {"utilization": 8725, "sm_clock_mhz": 1297, "power_mw": 11_403}


def test_what_it_does_not_print_is_not_reported() -> None:
    assert parse_gpu_top({"period": {}}) == {}


def test_without_the_program_that_is_the_reason() -> None:
    fields, why = IntelGpuTop("no-such-program-here").read(CARD)
    assert fields == {}
    assert "not installed" in why
