"""Operators that users write, and how they are found."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.data.base.operator import Filter, Mapper, OperatorContext
from joblens.data.registry import lookup as registry
from joblens.data.registry import user_operators
from joblens.model.errors import RecipeError
from joblens.model.recipes.recipe import OperatorCall
from tests.unit.data.own_operators import nothing_registered

pytestmark = pytest.mark.usefixtures(nothing_registered.__name__)
__all__ = ["nothing_registered"]

SHOUT = """
import joblens

@joblens.operator
def shout(row, mark: str = "!"):
    "Makes it loud."
    row["text"] = row["text"].upper() + mark
    return row
"""


def written(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_a_decorated_function_of_a_file_is_found(tmp_path: Path) -> None:
    registry.load_custom([written(tmp_path / "mine.py", SHOUT)])
    assert registry.kind_of(registry.find("shout")) == "mapper"
    assert "shout" in registry.names()


def test_a_decorated_function_can_still_be_called() -> None:
    @joblens.operator
    def double(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"n": row["n"] * 2}

    assert double({"n": 4}) == {"n": 8}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("@joblens.operator\ndef one(row) -> bool: ...", "filter"),
        ("@joblens.operator\ndef one(row): ...", "mapper"),
        ("@joblens.operator(kind='filter')\ndef one(row): ...", "filter"),
        ("@joblens.operator(name='one', kind='mapper')\ndef some_filter(row): ...", "mapper"),
        ("@joblens.operator(name='one')\ndef some(row) -> 'bool': ...", "filter"),
        ("@joblens.operator(name='one')\nclass Some:\n  def __call__(self, row) -> bool: ...", "filter"),
    ],
)
def test_what_a_function_is_comes_from_what_it_says_of_itself(tmp_path: Path, line: str, kind: str) -> None:
    registry.load_custom([written(tmp_path / "mine.py", f"import joblens\n{line}")])
    assert registry.kind_of(registry.find("one")) == kind


def test_a_function_called_filter_is_one(tmp_path: Path) -> None:
    registry.load_custom(
        [written(tmp_path / "mine.py", "import joblens\n@joblens.operator\ndef odd_filter(row): ...")]
    )
    assert registry.kind_of(registry.find("odd_filter")) == "filter"


def test_what_a_function_takes_besides_the_row_are_its_parameters(tmp_path: Path) -> None:
    registry.load_custom([written(tmp_path / "mine.py", SHOUT)])
    problems = registry.problems_of(OperatorCall(index=0, name="shout", params={"marc": 1, "mark": 2}))
    assert [problem.message for problem in problems] == [
        "shout has no parameter 'marc'; did you mean 'mark'? (parameters: mark)",
        "shout: 'mark' must be text, not 2",
    ]


def test_a_parameter_that_has_to_be_given_is_missed(tmp_path: Path) -> None:
    text = "import joblens\n@joblens.operator\ndef cut(row, length: int): ..."
    registry.load_custom([written(tmp_path / "mine.py", text)])
    with pytest.raises(RecipeError, match=r"^cut: missing parameter 'length'$"):
        registry.make(OperatorCall(index=0, name="cut"), OperatorContext())


def test_a_misspelled_parameter_is_not_reported_again_as_missing(tmp_path: Path) -> None:
    text = "import joblens\n@joblens.operator\ndef cut(row, length: int): ..."
    registry.load_custom([written(tmp_path / "mine.py", text)])
    assert len(registry.problems_of(OperatorCall(index=0, name="cut", params={"lenght": 3}))) == 1


def test_all_files_of_a_folder_are_found_and_can_import_each_other(tmp_path: Path) -> None:
    written(tmp_path / "ops" / "shared.py", "MARK = '?'")
    written(tmp_path / "ops" / "asking.py", "from .shared import MARK\n" + SHOUT.replace('"!"', "MARK"))
    registry.load_custom([str(tmp_path / "ops")])
    assert registry.find("shout")


def test_a_package_that_imports_its_own_parts_runs_each_once(tmp_path: Path) -> None:
    written(tmp_path / "pack" / "__init__.py", "from . import part")
    written(tmp_path / "pack" / "part.py", SHOUT)
    registry.load_custom([str(tmp_path / "pack")])
    assert registry.find("shout")


def test_a_class_with_a_name_needs_no_decorator(tmp_path: Path) -> None:
    text = "import joblens\nclass Odd(joblens.Filter):\n    name = 'odd_rows'\n"
    registry.load_custom([written(tmp_path / "mine.py", text)])
    assert issubclass(registry.find("odd_rows"), Filter)


def test_a_decorated_class_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    text = "import joblens\n@joblens.operator\nclass CutTail(joblens.Mapper): ...\n"
    registry.load_custom([written(tmp_path / "mine.py", text)])
    assert issubclass(registry.find("cut_tail"), Mapper)


def test_a_file_is_run_once_a_process(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mine.py", "import sys\nsys.runs_of_mine = getattr(sys, 'runs_of_mine', 0) + 1\n"
    )
    registry.load_custom([path])
    registry.load_custom([path, str(tmp_path / "." / "mine.py")])
    assert sys.__dict__.pop("runs_of_mine") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import joblens\n\n1 / 0\n",
            r"mine\.py cannot be run: ZeroDivisionError: .* \(line 3 of .*mine\.py\)",
        ),
        ("def broken(:\n", r"mine\.py cannot be run: SyntaxError"),
        ("raise SystemExit(3)\n", r"mine\.py cannot be run: SystemExit"),
        (
            "import joblens\n@joblens.operator\ndef text_length_filter(row): ...",
            "operator 'text_length_filter' already exists",
        ),
        (
            "import joblens\n@joblens.operator\ndef x(): ...",
            r"mine\.py: operator 'x' takes no row",
        ),
        ("import joblens\n@joblens.operator\nasync def x(row): ...", "operator 'x' is async"),
        ("import joblens\n@joblens.operator\ndef x(row): yield row", "operator 'x' is a generator"),
        (
            "import joblens\n@joblens.operator\ndef x(row, by: 'Nix'): ...",
            "operator 'x': invalid parameter types: .*Nix",
        ),
        (
            "import joblens\n@joblens.operator(kind='filtr')\ndef x(row): ...",
            "operator 'x': kind must be 'mapper' or 'filter', not 'filtr'",
        ),
        (
            "import joblens\n@joblens.operator(fields='title')\ndef x(row): ...",
            r"operator 'x': fields must be a list, such as \['title'\]",
        ),
        (
            "import joblens\n@joblens.operator\nclass X:\n  def __call__(self): ...",
            "operator 'x' takes no row",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        registry.load_custom([written(tmp_path / "mine.py", text)])


def test_two_files_with_the_same_operator_are_distinguished(tmp_path: Path) -> None:
    one, other = written(tmp_path / "one.py", SHOUT), written(tmp_path / "other.py", SHOUT)
    with pytest.raises(RecipeError, match=r"two files define the operator 'shout': .*one.*other"):
        registry.load_custom([one, other])


@pytest.mark.parametrize("path", ["no_such_file.py", "empty"])
def test_a_path_without_operators_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=f"no (such file|Python files).*{path}"):
        registry.load_custom([str(tmp_path / path)])


def test_operators_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "loud_package.py", SHOUT)
    info = tmp_path / "loud-1.0.dist-info"
    written(info / "METADATA", "Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    written(
        info / "entry_points.txt",
        "[joblens.operators]\nshout = loud_package:shout\nlouder = loud_package:shout\n"
        "gone = loud_package:gone\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"shout", "louder"} <= set(registry.names())
    assert registry.find("shout").name == "shout"
    assert registry.find("louder").name == "louder"
    with pytest.raises(RecipeError, match="the operator 'gone' of loud_package:gone cannot be imported"):
        registry.find("gone")
    sys.modules.pop("loud_package", None)


def test_a_recipe_has_the_operators_of_its_own_files_only(tmp_path: Path) -> None:
    first = written(tmp_path / "first.py", SHOUT)
    second = written(tmp_path / "second.py", SHOUT)
    registry.load_custom([first])
    registry.load_custom([second])  # another recipe of the same program
    assert user_operators.source_of("shout") == second
    assert "shout" in registry.names()
    registry.load_custom([])
    assert "shout" not in registry.names()


def test_a_file_that_was_changed_is_run_again(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.py", SHOUT)
    registry.load_custom([path])
    written(tmp_path / "mine.py", SHOUT.replace("def shout", "def whisper"))
    os.utime(path, ns=(1, 1))
    registry.load_custom([path])
    assert "whisper" in registry.names()
    assert "shout" not in registry.names()


@pytest.mark.parametrize("imported", [False, True])
def test_a_file_that_was_changed_within_a_second_is_not_run_from_old_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    """Python takes bytecode for current when the source has the same size and the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = tmp_path / "own"
    folder.mkdir()
    file = folder / "words.py"
    if imported:
        (folder / "a_first.py").write_text("from . import words\n")
    for number, method in enumerate(("upper", "title")):
        file.write_text(
            "import joblens\n\n@joblens.operator(fields=['text'])\ndef changed_mapper(row):\n"
            f"    row['text'] = row['text'].{method}()\n    return row\n"
        )
        os.utime(file, ns=(0, 1_700_000_000_000_000_000 + number))
        user_operators.load([str(folder)], reserved=())
        module = sys.modules[f"{user_operators._module_name(str(folder))}.words"]
        assert module.changed_mapper({"text": "a row"}) == {"text": getattr("a row", method)()}
    user_operators.load([], reserved=())
