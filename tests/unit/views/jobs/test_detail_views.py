"""What the closer looks at a job say."""

import pytest
from msgspec import structs

from joblens.model.jobs.details import ContainerFacts, Details, Endpoint, EndpointTable
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.values.units import MIB
from joblens.views.jobs.devices import container_pairs
from joblens.views.jobs.labels import SectionContext, why_empty
from joblens.views.jobs.resources import render_part
from joblens.views.jobs.show import render_show
from joblens.views.jobs.stats import render_profile_statistics
from joblens.views.text.style import PLAIN
from tests.builders.records import START_US, a_record, a_sample

_JOB = Job(uuid="3f8a21b2-c4d5-4e6f-a7b8-c9d0e1f2a3b4", argv=("true",), created_at_us=1)


@pytest.mark.parametrize(
    ("changes", "part", "words"),
    [
        ({}, "memory", "not measured; use joblens run --probes +memory"),
        ({"probes": ()}, "threads", "not measured; use joblens run --probes +threads"),
        ({"attached": "process 7"}, "memory", "joblens attach … --probes +memory"),
        ({"argv": ()}, "memory", "measured from inside the program, or imported"),
        ({"monitor": False}, "threads", "measuring was off"),
        ({}, "threads", "not sampled yet"),
    ],
)
def test_why_there_is_nothing_depends_on_what_was_asked_for(
    changes: dict[str, object], part: str, words: str
) -> None:
    record = Record(status=Status.RUNNING, job=structs.replace(_JOB, **changes))
    context = SectionContext(record=record, samples=[], details=Details(), width=200, paint=PLAIN)
    assert words in why_empty(part, context, part)[0]


def test_a_container_is_reported_with_its_image_and_what_the_engine_used_for_it() -> None:
    overhead = {"helper_cpu_s": 0.25, "helper_memory_bytes": 8 << 20, "engine_cpu_s": 0.5}
    facts = ContainerFacts(
        engine="docker", id="c0ffee", image="alpine:3", image_id="sha256:abc", overhead=overhead
    )
    result = dict(container_pairs(facts))
    assert (result["image"], result["image id"]) == ("alpine:3", "sha256:abc")
    assert (result["helper overhead"], result["engine overhead"], result["client overhead"]) == (
        "CPU 250ms, 8.0 MiB memory",
        "CPU 500ms",
        "",
    )


def test_a_number_that_is_cut_keeps_its_unit() -> None:
    spread = {"n": 3, "mean": 1234.5, "min": 1000.25, "max": 2000.5, "stdev": 100.125, "median": 1100.5}
    result = {"profiles": 3, "io_stats": {"max_written_mb_per_second": spread}}
    line = render_profile_statistics(result, width=72, paint=PLAIN)[-1]
    assert line.split()[0].endswith("second")
    assert len(line) <= 72


def test_a_long_variable_goes_on_below_its_beginning() -> None:
    path = ":".join(f"/opt/tool{number}/bin" for number in range(12))
    record = Record(status=Status.QUEUED, job=structs.replace(_JOB, env={"HOME": "/root", "PATH": path}))
    lines = render_show(record, [], now_us=2, width=60, paint=PLAIN)
    first = next(place for place, line in enumerate(lines) if "PATH=" in line)
    assert all(len(line) <= 60 and line.startswith(" " * 19) for line in lines[first:])
    assert f"PATH={path}" in "".join(line[19:] for line in lines[first:])


@pytest.mark.parametrize(("factor", "result"), [(None, False), (380.0, True)])
def test_the_factor_for_co2_is_reported_where_it_is_set(factor: float | None, result: bool) -> None:
    record = Record(status=Status.QUEUED, job=structs.replace(_JOB, grid_co2_g_per_kwh=factor))
    lines = render_show(record, [], now_us=2, width=80, paint=PLAIN)
    assert any(line.split() == ["CO2", "factor", "380", "g/kWh"] for line in lines) is result


@pytest.mark.parametrize(
    ("status", "gone", "sent", "when"),
    [
        (Status.SUCCESS, 0, "≥34.0 MiB", "1.9s before the end"),
        (Status.RUNNING, 0, " 34.0 MiB", "4.1s after the start"),
        (Status.RUNNING, 1, "≥34.0 MiB", "4.1s after the start"),
        (Status.MEASURED, 0, " 34.0 MiB", "1.9s before the end"),  # it goes on, and so do its sockets
    ],
)
def test_bytes_of_sockets_that_are_gone_are_a_lower_bound_and_the_rest_is_reported(
    status: Status, gone: int, sent: str, when: str
) -> None:
    peer = Endpoint(
        protocol="tcp", address="10.0.0.2", port=443, sockets=1, gone=gone, rx_bytes=0, tx_bytes=34 * MIB
    )
    table = EndpointTable(
        at_us=START_US + 6_000_000,
        open_at_us=START_US + 4_100_000,
        endpoints=(peer,),
        seen=1,
        source="sock_diag",
    )
    record = a_record(duration_s=6.0)
    record = structs.replace(
        record, status=status, outcome=record.outcome if status is not Status.RUNNING else None
    )
    samples = [a_sample(6, network_rx_bytes=MIB, network_tx_bytes=57 * MIB)]
    context = SectionContext(
        record=record, samples=samples, details=Details(endpoints=table), width=300, paint=PLAIN
    )
    text = "\n".join(render_part("network", context))
    assert sent in text
    assert when in text
    assert "34.0 MiB of 57.0 MiB sent" in text
