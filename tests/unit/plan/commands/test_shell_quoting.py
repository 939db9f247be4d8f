"""User data in command lines never runs: lines that confuse readers of shell grammar, and random ones."""

import pytest

from joblens.plan.commands.references import check_user_data

REFERENCE = "${user_data.input.d}"


@pytest.mark.parametrize(
    "line",
    [
        "[ @ = x ] || echo no",
        "if [[ $x == y ]]; then echo @; fi",
        "ls [a-c]*.txt @",
        "python -c 'd[\"@\"]'",
        "cmd --one \\\n  --two @",
        "for f in a b; do echo $f @; done",
        "case $x in\n  a|b) echo @ ;;\n  (c) echo ;;\n  *) exit 1 ;;\nesac",
        "arr=(a @ 'b'); echo ${arr[0]}",
        'x=${Y:-"a b"}; echo @',
        "cmd > out.txt 2>&1 <<EOF\n@\nEOF\n",
        "f() { case $1 in a) echo @ ;; esac; }; f a",
        "time ./fit @",
        "./fit @ >out.txt 2>&1; echo $$",
        "./fit @ >&2",
        "awk '{ print $1 }' f | sort > @",
    ],
)
def test_usual_lines_are_understood(line: str) -> None:
    assert check_user_data(line.replace("@", REFERENCE)) is None
