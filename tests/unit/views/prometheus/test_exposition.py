"""Exposition formats: text of jobs cannot break out of a label."""

from hypothesis import given
from hypothesis import strategies as st

from joblens.views.prometheus.exposition import LONGEST_LABEL, Families, label_value, labels


def test_a_name_with_quotes_and_line_ends_stays_one_label() -> None:
    families = Families()
    families.gauge("joblens_jobs", "Jobs.").add(labels({"name": 'a"} 1\nevil_metric 7\\'}), 1)
    assert families.as_text().splitlines()[2:] == [r'joblens_jobs{name="a\"} 1\nevil_metric 7\\"} 1']


@given(st.text(st.characters(codec=None, categories=None)))
def test_every_label_is_one_line_of_utf_8(text: str) -> None:
    shown = label_value(text)
    assert "\n" not in shown
    assert len(shown.encode()) <= 8 * LONGEST_LABEL
    assert '"' not in shown.replace("\\\\", "").replace('\\"', "")


def test_an_unknown_number_has_no_row_and_an_empty_family_no_text() -> None:
    families = Families()
    families.gauge("joblens_memory_bytes", "Memory.").add("", None)
    assert not families.as_text()


def test_openmetrics_names_families_without_their_suffix() -> None:
    families = Families()
    families.counter("joblens_cpu_seconds_total", "CPU time.").add('name="a"', 1.5)
    families.info("joblens_build_info", "Version.").add('version="1"', 1)
    assert families.as_openmetrics().splitlines() == [
        "# TYPE joblens_cpu_seconds counter",
        "# HELP joblens_cpu_seconds CPU time.",
        'joblens_cpu_seconds_total{name="a"} 1.5',
        "# TYPE joblens_build info",
        "# HELP joblens_build Version.",
        'joblens_build_info{version="1"} 1',
        "# EOF",
    ]
