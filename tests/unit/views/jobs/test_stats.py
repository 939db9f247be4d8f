from joblens.model.history import GroupStatistics, Statistics
from joblens.views.jobs.stats import render_job_stats, render_stats
from joblens.views.text.style import PLAIN

ATTACHED = GroupStatistics(jobs=1, by_status={"measured": 1})


def test_jobs_that_were_only_measured_have_no_success_rate() -> None:
    statistics = Statistics(overall=ATTACHED, by_tool={"server": ATTACHED})
    lines = render_stats(statistics, width=100, paint=PLAIN)
    assert lines[0] == "1 ended job: 1 measured"
    assert lines[-3].split()[:3] == ["server", "1", "-"]
    text = "\n".join(render_job_stats(statistics))
    assert text.count("Successful: 0 (-)") == 2
    assert "Success Rate: -" in text
