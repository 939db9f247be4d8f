"""Every link between the project's own pages leads somewhere, to the very heading it names, and every page
can be reached from README.md."""

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
IMAGE_TAG = re.compile(r'<img[^>]*\ssrc="([^"]+)"')


def prose_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def links_of(page: Path) -> list[str]:
    text = prose_of(page)
    found = LINK.findall(text) + IMAGE_TAG.findall(text)
    return [link for link in found if not link.startswith(("http://", "https://", "mailto:"))]


def anchors_of(page: Path) -> set[str]:
    """Headings as they are linked: lower case, without punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(REPOSITORY), link
        if anchor:
            assert anchor in anchors_of(target), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
    assert sorted(set(PAGES) - reached) == []


def test_every_page_of_the_docs_is_in_their_index() -> None:
    docs = REPOSITORY / "docs"
    listed = {(docs / link.partition("#")[0]).resolve() for link in links_of(docs / "index.md")}
    assert {page for page in docs.rglob("*.md") if page.name != "index.md"} <= listed
