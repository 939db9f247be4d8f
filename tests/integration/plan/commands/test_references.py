"""`${files.…}`, `${datasets.…}` and `${user_data.…}` in commands."""

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import json

from joblens.model.errors import InputError
from joblens.plan.commands.references import put_user_data

# `@` is the reference; the program prints what it got.
QUOTED = [
    "printf %s @",
    "printf %s '@'",
    'printf %s "@"',
    "printf %s ''@''",
    "printf %s '' @",
    'printf %s "$(printf %s "@")"',
    'printf %s "$(printf %s @)"',
    "printf %s \"$(printf %s '@')\"",
    'printf %s "`printf %s @`"',
    "printf %s \"`printf %s '@'`\"",
    'x=`printf %s "@"`; printf %s "$x"',
    "x=`printf %s '@'`; printf %s \"$x\"",
    'x=`y=\\`printf %s @\\`; printf %s "$y"`; printf %s "$x"',
    'x=@; printf %s "$x"',
    "(printf %s @)",
    "{ printf %s @; }",
    "true && printf %s @ # it's a comment",
    "# don't\nprintf %s @",
    "printf %s @ # @ it's",
    "echo a#'b' >/dev/null; printf %s @",
    "case x in y) echo '(' ;; x) printf %s @ ;; esac",
    'printf %s "$(case x in (y) echo ;; x) printf %s @ ;; esac)"',
    'printf %s "$(echo case >/dev/null; printf %s "@")"',
    "if true; then printf %s @; fi",
    "f() { printf %s @; }; f",
    'printf %s "${UNSET:-}"@',
    "echo $((1 + (2 << 3))) >/dev/null; printf %s @",
    "printf %s \\'@ | tail -c +2",
    "echo \"it's\" >/dev/null; printf %s '@'",
    "sh -c 'printf %s \"$1\"' sh @",
]
DOCUMENTS = [
    "cat <<'EOF'\n@\nEOF",
    "cat <<EOF\n@\nEOF",
    'cat <<"EOF"\n@\nEOF\n',
    "cat <<\\EOF\n@\nEOF",
    "cat <<-EOF\n\t@\n\tEOF",
    "cat <<EOF | cat\n@\nEOF\n: done it\\'s",
    "cat <<A; cat <<'B'\n@\nA\nB\n",
    "cat <<EOF\n$(printf %s '@')\nEOF",
    'cat <<EOF\n$(printf %s "@")\nEOF',
    "cat <<EOF\n$(printf %s @)\nEOF",
    "cat <<'A' <<B\nit's\nA\n@\nB",
    'x=$(cat <<EOF\n@\nEOF\n)\nprintf "%s\\n" "$x"',
]
BASH_ONLY = ["printf %s $'@'", 'printf %s $"@"', 'cat <<<@ | tr -d "\\n"', 'printf %s "$(< <(printf %s @))"']
VALUES = [
    "plain",
    "it's",
    'a "b"',
    "$HOME ${HOME} $(id) `id`",
    "back\\slash \\\\ \\' \\\" \\$ \\`",
    "two\nlines\ttab \r \x01",
    "'; touch broken; '",
    '"; touch broken; "',
    "`touch broken`$(touch broken)",
    "\\",
    "*.py ~ ! # ; & | < > ( ) { } [ ]",
    "EOF",
    "ünï\u2028cödé",
    {"a": [1, 2.5, None, True, {"b'c": '"'}]},
    [],
    5,
    -1.5,
    None,
    False,
]
SHELLS = [shell for name in ("bash", "dash", "sh") if (shell := shutil.which(name))]


def arrived(template: str, value: object, shell: str, folder: Path) -> str:
    line = put_user_data(template.replace("@", "${user_data.input.it is 'd'}"), {"it is 'd'": value})
    done = subprocess.run([shell, "-c", line], capture_output=True, check=False, cwd=folder)
    assert (done.returncode, done.stderr) == (0, b""), line
    assert not (folder / "broken").exists()
    return done.stdout.decode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("template", QUOTED)
def test_the_program_gets_the_json_text_whatever_quotes_stand_around_it(
    template: str, shell: str, tmp_path: Path
) -> None:
    for value in VALUES:
        if value is None and "<<" in template:
            continue
        assert arrived(template, value, shell, tmp_path) == json.encode(value).decode()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("template", DOCUMENTS)
def test_so_does_a_program_that_reads_a_here_document(template: str, shell: str, tmp_path: Path) -> None:
    for value in VALUES:
        assert arrived(template, value, shell, tmp_path) == json.encode(value).decode() + "\n"


@pytest.mark.parametrize("template", BASH_ONLY)
def test_so_does_a_program_behind_what_only_bash_has(template: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    for value in VALUES:
        assert arrived(template, value, bash, tmp_path) == json.encode(value).decode()


@pytest.mark.parametrize(
    "template", ["printf %s 'a: @ b'", 'printf %s "a: @ b"', "printf %s a:' '@\\ b", "printf %s 'a: '@\" b\""]
)
def test_text_around_it_stays(template: str, tmp_path: Path) -> None:
    for value in VALUES:
        assert arrived(template, value, SHELLS[0], tmp_path) == f"a: {json.encode(value).decode()} b"


def test_a_number_stands_in_arithmetic_and_nothing_else_does(tmp_path: Path) -> None:
    for template in ("printf %s $((@ + 1))", 'printf %s "$((1 + @))"', 'x=$((@+1)); printf %s "$x"'):
        assert arrived(template, 41, "/bin/sh", tmp_path) == "42"
        with pytest.raises(
            InputError, match="is in arithmetic or in an array index, and its value is not a number"
        ):
            arrived(template, "a[$(touch broken)]", "/bin/sh", tmp_path)
    with pytest.raises(InputError, match="not a number"):
        arrived("((@))", "a[$(touch broken)]", "/bin/sh", tmp_path)


def test_a_number_before_a_redirection_is_no_descriptor(tmp_path: Path) -> None:
    line = put_user_data("printf '<%s>' ${user_data.input.n}>/dev/stdout", {"n": 2})
    assert subprocess.check_output(["/bin/sh", "-c", line], cwd=tmp_path) == b"<2>"
