"""Documentation, help, messages, docstrings and comments use the words of docs/glossary.md, and none of its
"don't say" column."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import pytest

from joblens.cli.main import COMMANDS, cli
from tests.conftest import REPOSITORY

# Per area: how many such phrases it still has, and how many statements that begin with a clause. An area that
# is not listed has none.
CEILINGS = {
    "messages": (1, 0),  # bell is an option of sbatch
}

# Words of the same column that names in the code do not have either; `place` is a verb there.
NOT_IN_NAMES = re.compile(
    r"(?<![a-z])(?:anew|bells?|desks?|heed|heard|hears?|hired?|hiring|leash|looks?|looked|looking|nobody"
    r"|parcels?|places|rooms?|settled?|settles|settling|somebody|told|untold|vain|whoever)(?![a-z])"
)

# In tests, `nobody` is a user, and a thing may be in its place.
NOT_IN_NAMES_OF_TESTS = re.compile(
    NOT_IN_NAMES.pattern.replace("|nobody", "")
    .replace("|places|rooms?", "")
    .replace("|looks?|looked|looking", "")
)

DOCS = REPOSITORY / "docs"
GLOSSARY = DOCS / "glossary.md"
SOURCE = REPOSITORY / "src" / "joblens"
HEADING = "## Say, don't say\n"
# Text that is made from the help or the program's output, and code.
GENERATED = re.compile(r"<!-- (\w[\w ]*) -->\n.*?<!-- end of \1 -->\n", re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]+`")
SETTING = re.compile(r"^\| `[a-z_0-9]+\.[a-z_0-9.]+` \|.*$", re.MULTILINE)
OPENER = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=\| )|(?<=- ))((?:What(?! to\b)|Whoever|Those)\b[^.?!|]*[.?!|]?)", re.MULTILINE
)
# A string of JavaScript or a comment; templates are searched without what is inserted.
SCRIPT_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|/\*.*?\*/|(?:^|(?<=\s))//[^\n]*', re.DOTALL)
Texts = Iterator[tuple[str, str]]


def phrases() -> list[str]:
    table = GLOSSARY.read_text(encoding="utf-8").partition(HEADING)[2]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    return [phrase.strip() for cell in cells for phrase in cell.split(",")]


DONT_SAY = re.compile(
    rf"\b(?:{'|'.join(re.escape(phrase.lower()) for phrase in phrases())})\b"
)  # in lower case


def prose_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    if page == GLOSSARY:
        text = text.partition(HEADING)[0]
    for pattern in (GENERATED, FENCED, SETTING, INLINE):
        text = pattern.sub("", text)
    return text


def clauses_in(text: str) -> list[str]:
    """Returns the statements that begin with What, Whoever or Those; headings are no statements."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [each for each in OPENER.findall(lines) if not each.rstrip().endswith("?")]


def pages(found: list[Path]) -> Texts:
    for page in found:
        yield str(page.relative_to(REPOSITORY)), prose_of(page)


def help_texts() -> Texts:
    waiting: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        waiting.append((name, command))
    while waiting:
        name, command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += [(f"{name} {part}", each) for part, each in command.commands.items()]
        yield name, f"{command.help or ''} {command.short_help or ''}"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield f"{name} {parameter.opts[-1]}", parameter.help or ""


def docstrings_of(tree: ast.Module) -> set[int]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds)]
    firsts = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
    return {id(value) for value in firsts}


def sentences_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields string literals of three words and more that are neither docstrings nor SQL."""
    docstrings = docstrings_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            if len(text.split()) >= 3 and not re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text):
                yield node.lineno, text


def messages() -> Texts:
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in sentences_in(ast.parse(path.read_text(encoding="utf-8"))):
            yield f"{path.relative_to(SOURCE)}:{line}", text


def packages() -> Iterator[tuple[str, list[Path]]]:
    """Yields the parts of the code: rooms, and packages of the large room `agent`."""
    for room in sorted(path for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"):
        parts = sorted(path for path in room.iterdir() if path.is_dir()) if room.name == "agent" else [room]
        for part in (path for path in parts if path.name != "__pycache__"):
            yield str(part.relative_to(SOURCE)), sorted(part.rglob("*.py"))
    yield "joblens", sorted(SOURCE.glob("*.py"))


def prose_in(files: list[Path], folder: Path = SOURCE) -> Texts:
    """Yields docstrings and comments, without names in backticks."""
    for path in files:
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(folder)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                if docstring is not None:
                    # Lines are joined: a phrase may continue on the next one.
                    yield f"{where}:{node.body[0].lineno}", INLINE.sub("", docstring.replace("\n", " "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield f"{where}:{token.start[0]}", INLINE.sub("", token.string.lstrip("# "))


def beside_the_package() -> Texts:
    """Yields prose of scripts, examples and benchmarks; the whole text of units, alerts, shell scripts."""
    for folder in (REPOSITORY / name for name in ("scripts", "examples", "bench", "contrib")):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        yield from prose_in([path for path in files if path.suffix == ".py"], REPOSITORY)
        for path in files:
            if path.suffix in {"", ".service", ".socket", ".yml", ".yaml", ".toml", ".kdl"}:
                yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")


def scripts() -> Texts:
    """Yields texts and comments of the dashboard."""
    for path in sorted(SOURCE.rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        for match in SCRIPT_TEXT.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            plain = re.sub(r"\s+\*? *|\$\{[^}]*\}", " ", match[0].strip('"`/*'))
            yield f"{path.relative_to(SOURCE)}:{line}", INLINE.sub("", plain)


AREAS: dict[str, Callable[[], Texts]] = {
    "README": lambda: pages(
        [REPOSITORY / f"{name}.md" for name in ("README", "CONTRIBUTING", "ARCHITECTURE", "CHANGELOG")]
    ),
    "dashboard": scripts,
    "beside the package": beside_the_package,
    "examples": lambda: pages([REPOSITORY / "examples" / "README.md"]),
    "pages": lambda: pages(sorted(DOCS.glob("*.md"))),
    "command pages": lambda: pages(sorted((DOCS / "commands").glob("*.md"))),
    "help": help_texts,
    "messages": messages,
} | {f"code of {name}": partial(prose_in, files) for name, files in packages()}


@pytest.mark.parametrize("area", AREAS)
def test_nothing_says_what_the_glossary_says_not_to(area: str) -> None:
    """A question may begin with a relative clause, a statement may not."""
    texts = list(AREAS[area]())
    assert sum(len(text) for _, text in texts) > 300
    said = [f"{where}: {phrase}" for where, text in texts for phrase in DONT_SAY.findall(text.lower())]
    clauses = [f"{where}: {clause}" for where, text in texts for clause in clauses_in(text)]
    most_phrases, most_clauses = CEILINGS.get(area, (0, 0))
    assert len(said) <= most_phrases, "\n".join(said)
    assert len(clauses) <= most_clauses, "\n".join(clauses)


def words_of(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name).lower()


def names_with(pattern: re.Pattern[str], folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8")
        words = {word for word in re.findall(r"[^\W\d]\w*", text) if pattern.search(words_of(word))}
        for token in tokenize.generate_tokens(io.StringIO(text).readline) if words else ():
            if token.type == tokenize.NAME and token.string in words:
                yield f"{path.relative_to(REPOSITORY)}:{token.start[0]}: {token.string}"


def test_names_in_the_code_have_none_of_them() -> None:
    found = set(names_with(NOT_IN_NAMES, SOURCE))
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_names_in_tests_have_none_of_them(folder: str) -> None:
    found = set(names_with(NOT_IN_NAMES_OF_TESTS, REPOSITORY / folder))
    assert not found, "\n".join(sorted(found))


def test_a_word_in_a_name_is_found() -> None:
    assert NOT_IN_NAMES.search(words_of("_LookedAt"))
    assert NOT_IN_NAMES.search(words_of("_was_told"))
    assert NOT_IN_NAMES_OF_TESTS.search(words_of("test_it_is_told"))
    assert not NOT_IN_NAMES_OF_TESTS.search(words_of("as_nobody_in_places"))
    assert not NOT_IN_NAMES.search(words_of("ProcessLookupError.headroom_replaces"))


def test_a_phrase_is_found_and_a_word_that_contains_one_is_not() -> None:
    assert DONT_SAY.search("the job is gone on with.")
    assert DONT_SAY.search("placed; 5 rows a second")
    assert not DONT_SAY.search("mushrooms are replaced by bells' makers".replace("bells'", "label"))


def test_texts_and_comments_of_a_script_are_searched() -> None:
    script = 'a = "one"; // two\nb = `three ${four}`; /* five\n * six */'
    assert [match[0] for match in SCRIPT_TEXT.finditer(script)] == [
        '"one"', "// two", "`three ${four}`", "/* five\n * six */"
    ]  # fmt: skip


def test_a_statement_that_begins_with_a_clause_is_found_and_a_question_is_not() -> None:
    assert clauses_in("It runs. What it needs is below.") == ["What it needs is below."]
    assert clauses_in("## What it needs\n| What did it use? | show |") == []


def test_the_table_has_both_columns() -> None:
    assert len(phrases()) > 50
    assert "" not in phrases()
