from joblens.analysis.slurm.text import (
    SEPARATOR,
    gpus_of,
    node_names,
    read_sinfo,
    read_squeue,
    slurm_instant_us,
    tres,
)


def test_an_instant_is_a_number_of_seconds_or_a_time_in_utc() -> None:
    assert slurm_instant_us("1794796079") == 1_794_796_079_000_000
    assert slurm_instant_us("2026-11-16T02:27:59") == 1_794_796_079_000_000
    assert slurm_instant_us("Unknown") is None
    assert slurm_instant_us("0") is None


def test_a_list_of_nodes_that_cannot_be_read_stays_as_it_is() -> None:
    assert node_names("n[1-2],gpu01") == ("n1", "n2", "gpu01")
    assert node_names("None assigned") == ()
    assert node_names("n[1-") == ("n[1-",)


def test_gpus_are_the_sum_or_that_of_all_kinds() -> None:
    assert gpus_of(tres("cpu=2,gres/gpu=3,gres/gpu:a100=2,gres/gpu:l40=1")) == 3
    assert gpus_of(tres("cpu=2,gres/gpu:a100=2,gres/gpu:l40=1")) == 3
    assert gpus_of(tres("cpu=2,mem=1G")) is None


def _line(*values: str) -> str:
    return SEPARATOR.join(values)


def test_a_task_of_an_array_that_waits_is_read_with_its_reason() -> None:
    values = (
        "9_1",
        "9",
        "PENDING",
        "BeginTime",
        "a|b",
        "joblens run=x",
        "ada",
        "main",
        "phys",
        "normal",
    )
    rest = ("", "1", "2", "1794796313", "1794799913", "1:00:00", "1:00:00")
    (job,) = read_squeue(_line(*values, *rest) + "\n")
    assert (job.job_id, job.raw_id, job.state, job.reason) == ("9_1", "9", "PENDING", "BeginTime")
    assert (job.name, job.comment, job.nodes, job.cpus) == ("a|b", "joblens run=x", (), 2)
    assert job.starts_at_us == 1_794_799_913_000_000
    assert job.time_limit_s == 3600


def test_a_comment_with_a_line_break_does_not_cut_a_job_in_two() -> None:
    values = ("7", "7", "RUNNING", "None", "x", "two\nlines", "ada", "main", "phys", "normal")
    rest = ("n[1-2]", "2", "4", "1794796313", "1794796313", "UNLIMITED", "UNLIMITED")
    first = _line(*values, *rest)
    jobs = read_squeue(f"{first}\n{first}\n")
    assert [job.comment for job in jobs] == ["two\nlines"] * 2
    assert jobs[0].nodes == ("n1", "n2")
    assert (jobs[0].reason, jobs[0].time_limit_s) == ("", None)


def test_partitions_have_limits_and_nodes() -> None:
    line = _line("gpu", "gpu*", "1-00:00:00", "1:00:00", "4", "64+", "512000+")
    line = _line(line, "gpu:a100:4(S:0-1),nvme:1", "mixed")
    (found,) = read_sinfo(line)
    assert (found.name, found.is_default, found.max_time_s) == ("gpu", True, 86400)
    assert (found.nodes, found.cpus_per_node) == (4, 64)
    assert found.memory_per_node_bytes == 512000 * 2**20
    assert found.gpus_per_node == 4
