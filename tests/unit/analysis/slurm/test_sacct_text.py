from joblens.analysis.slurm.text import jobs_of, read_sacct, sacct_header
from joblens.model.clusters.slurm import SlurmRow

_FIELDS = ("JobID", "JobName", "State", "ExitCode", "SubmitLine", "Elapsed")


def _rows(*lines: str, separator: str = "|") -> list[SlurmRow | None]:
    return [row for _, row in read_sacct(lines, _FIELDS, separator)]


def test_who_cancelled_a_job_is_distinguished_from_its_state() -> None:
    (row,) = _rows("4|x|CANCELLED by 1000|0:0||00:00:10")
    assert row is not None
    assert (row.state, row.cancelled_by, row.elapsed_s) == ("CANCELLED", "1000", 10.0)


def test_a_separator_within_a_command_or_a_name_is_put_back_where_it_was() -> None:
    rows = _rows(
        "4|x|COMPLETED|0:0|sh -c a || b|00:00:10",
        "5|a|b|FAILED|1:0|sbatch x|00:00:11",
    )
    assert [row and (row.job_id, row.name, row.state, row.submit_line) for row in rows] == [
        ("4", "x", "COMPLETED", "sh -c a || b"),
        ("5", "a|b", "FAILED", "sbatch x"),
    ]


def test_a_line_that_fits_nowhere_is_none_of_them() -> None:
    assert _rows("4|x|nonsense|0:0|a|b|c|d|00:00:10") == [None]


def test_a_command_of_several_lines_is_one_row() -> None:
    lines = ['4|x|COMPLETED|0:0|python -c "', "import this", '"|00:00:10', "5|y|FAILED|1:0||00:00:01"]
    rows = _rows(*lines)
    assert [row and row.job_id for row in rows] == ["4", "5"]
    assert rows[0] is not None
    assert rows[0].submit_line == 'python -c "\nimport this\n"'


def test_the_numbers_of_lines_are_those_at_which_rows_begin() -> None:
    lines = ["4|x|COMPLETED|0:0|a", "b|00:00:10", "5|y|FAILED|1:0||00:00:01"]
    assert [number for number, _ in read_sacct(lines, _FIELDS, "|")] == [1, 3]


def test_the_columns_are_known_by_the_first_line() -> None:
    assert sacct_header("JobID|State|Elapsed\n") == (["JobID", "State", "Elapsed"], "|")
    assert sacct_header("JobID|State|Elapsed|\n") == (["JobID", "State", "Elapsed"], "|")
    assert sacct_header("\ufeffJobID\x1fState\r\n") == (["JobID", "State"], "\x1f")
    assert sacct_header("JobID,State") == (["JobID", "State"], ",")


def test_what_is_no_first_line_of_sacct_is_refused() -> None:
    assert sacct_header("JobID        State    Elapsed") is None
    assert sacct_header("1|COMPLETED|00:00:10") is None
    assert sacct_header("root:x:0:0:root:/root:/bin/bash") is None
    assert sacct_header("") is None


def test_each_time_that_a_job_ran_has_its_own_steps() -> None:
    fields = ("JobID", "State")
    lines = [
        "7|REQUEUED",
        "7.batch|CANCELLED",
        "7|COMPLETED",
        "7.batch|COMPLETED",
        "7.0|COMPLETED",
        "8_1|FAILED",
    ]
    jobs = list(jobs_of(row for _, row in read_sacct(lines, fields, "|") if row is not None))
    assert [(job.row.job_id, job.row.state, len(job.steps)) for job in jobs] == [
        ("7", "REQUEUED", 1),
        ("7", "COMPLETED", 2),
        ("8_1", "FAILED", 0),
    ]


def test_a_step_without_its_job_belongs_to_no_other() -> None:
    rows = [SlurmRow(job_id="7"), SlurmRow(job_id="8.batch")]
    assert [len(job.steps) for job in jobs_of(rows)] == [0]
