"""The file of a report."""

import io
import re
from pathlib import Path

from joblens.app.html_report.packing import ReportFile
from tests.report_files import OpenedReport

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>"


def written(tmp_path: Path, items: list[str]) -> OpenedReport:
    file = io.BytesIO()
    out = ReportFile(file, script="'script'", style="a {}", version="1")
    numbers = [out.add("jobs", item) for item in items]
    assert numbers == list(range(len(items)))
    out.close({"title": HOSTILE})
    path = tmp_path / "report.html"
    path.write_bytes(file.getvalue())
    return OpenedReport(path)


def test_items_come_back_in_order_from_several_blocks(tmp_path: Path) -> None:
    items = [f"{number} {'x' * 50_000}" for number in range(30)]
    report = written(tmp_path, items)
    assert report.items("jobs") == items
    blocks = report.manifest["blocks"]["jobs"]
    assert len(blocks) > 2
    assert [first for _, first in blocks] == sorted({first for _, first in blocks})


def test_no_text_of_a_job_ends_an_element_of_the_page(tmp_path: Path) -> None:
    report = written(tmp_path, [HOSTILE])
    assert "alert(1)" not in re.sub(r"\\u003c[^<]*", "", report.text)
    assert report.text.count("</script>") == 3  # one block, the manifest, the script
    assert report.manifest["title"] == HOSTILE
    assert report.items("jobs") == [HOSTILE]


def test_only_its_own_script_and_style_take_effect(tmp_path: Path) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', written(tmp_path, []).text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert re.search(r"script-src 'sha256-[\w+/=]+';", policy[1])
    assert re.search(r"style-src 'sha256-[\w+/=]+';", policy[1])
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
