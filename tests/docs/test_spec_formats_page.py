"""The examples on the page about formats are what the page says they are: the same workflow."""

import re

from joblens.spec.formats.documents import FORMATS, read_document


def test_the_examples_of_the_five_formats_say_the_same() -> None:
    with open("docs/spec-formats.md", encoding="utf-8") as page:
        examples = dict(re.findall(r"```(\w+)\n(.*?)```", page.read(), re.DOTALL))
    assert set(examples) == set(FORMATS)
    documents = {name: read_document(text, name) for name, text in examples.items()}
    assert [document.problems for document in documents.values()] == [()] * len(FORMATS)
    for document in documents.values():
        assert document.value == documents["yaml"].value
