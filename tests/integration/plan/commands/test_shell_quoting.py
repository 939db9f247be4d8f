"""User data in command lines never runs: lines that confuse readers of shell grammar, and random ones."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joblens.model.errors import InputError
from joblens.plan.commands.references import put_user_data

REFERENCE = "${user_data.input.d}"
SHELLS = [shell for name in ("bash", "dash") if (shell := shutil.which(name))]
HOSTILE = [
    "$(touch broken)",
    "`touch broken`",
    "'$(touch broken)'",
    "';touch broken;'",
    '";touch broken;"',
    "\"'$(touch broken)",
    "a[$(touch broken)]",
    "\\'; touch broken; \\'",
    ");touch broken;(",
    "}$(touch broken)",
    "))$(touch broken)",
    ["a[$(touch broken)]"],
    {"x[`touch broken`]": "'"},
    7,
    None,
]
# `@` is the reference. Each of these put a value into the wrong quotes once, or might.
LINES = [
    "a[@]=1",
    'a["@"]=1',
    "a['@']=1",
    "a[ @ ]=1",
    "a[1;@]=1",
    "a=([@]=1)",
    "a=([ @ ]=1)",
    "a=(['@']=1)",
    "echo $[ @ + 1 ]",
    'echo "$[ @ + 1 ]"',
    "true \\\n# it's a comment\necho '@'",
    "cat <<E\na\\\nE\necho @\nE\n",
    "cat <<A | (\nx @\nA\ncat)\nx\nA\n",
    "cat <<A | cat $(\nx @\nA\necho)\nx\nA\n",
    "< <((echo \"))\" ; echo '@' ))",
    "cat < <((echo '))' '(' '(' ; echo '@' ))",
    "[[ a =~ (#) ]] && echo '@'\n[[ b =~ (#\n) ]]",
    "[[ a = @(#) ]] && echo '@'\ntrue )",
    "a[1<<2]=x\necho '@'\n2]=x\n",
    "echo \"$(case x in a) ;; case) ;; esac) it's @ (isn't)\"",
    "echo \"$(ca\\\nse x in x) echo;; esac) it's @ (isn't)\"",
    "echo \"$(time -p case x in x) echo;; esac) it's @ (isn't)\"",
    "echo \"$(coproc case x in x) echo;; esac) it's @ (isn't)\"",
    "echo \"$(time case x in x) e@cho;; esac) it's @ (isn't)\"",
    "echo \"$(f() { case x in x) echo;; esac; }; f) it's @ (isn't)\"",
    "echo \"$(function f { case x in x) echo;; esac; }; f) it's @ (isn't)\"",
    "cat <<$'E'\n@\nE\n",
    'cat <<"a\\"b"\n\'@\'\na"b\n',
    "echo $'it\\'s @' '@'",
    'echo "${x:-"\'"}" @ "\'"',
    'cat <<E\n${x:-"}"} @\nE\n',
    "echo ${x:-`echo \"}\"`} '@'",
    "echo ${ echo @; }",
    "((1 << E))\necho '@'\nE\n",
    "((1 # '\n)); echo @ '",
    "$\\\n(echo @)",
    'echo "$\\\n(echo @)"',
    'echo "`echo "@"`"',
    'echo "`echo \\"@\\"`"',
    "echo `echo '@' # it's`",
    "a>&'@']=1[",
    'echo "|$$((printf %s "@" )"',
    "echo a;# it's\necho @",
    "echo >(cat '@') # '",
    "case @ in '@') ;; *@*) echo @ ;; esac",
    "case x in x) echo '@';; esac; echo \"@\"",
    "f() ((16#ff + @)); f",
    "x=1; echo $x@",
    "for((i=0;i<@;i++)) do echo; done",
    "while((@ == '1')); do false; done",
    "for ((i=0;i<@;i++)) do echo; done",
    "let x=@; declare -i y=@; [[ @ -eq 1 ]]",
    'read -r x <<< @; echo "$x"',
    "cat <<A <<'B'\n@ $(echo '@')\nA\n'@'\nB\n",
    "$(cat <<A\n'@'\nA\n)",
    "{ echo @; } 2>&1 | { cat; }",
    "echo $\"@\" $'@' \"$'@'\"",
]
PIECES = [
    *"'\"`$()\\#;&|<>{}[]@ \n",
    "@",
    " @ ",
    "'@'",
    '"@"',
    "echo ",
    "$(",
    "$((",
    "))",
    "((",
    "${x",
    "${x:-",
    "}",
    "$'",
    '$"',
    "<<E\n",
    "<<'E'\n",
    "<<-E\n",
    "\nE\n",
    "<<<",
    "<(",
    ">(",
    "case x in ",
    "x) ",
    ";; ",
    " esac",
    "[[ ",
    " ]]",
    "=~ ",
    "a=(",
    "a[",
    "]=1",
    "\\\n",
    "# ",
    "$[",
    "\\'",
    '\\"',
    "\\`",
    "$x",
    "if true; then ",
    "; fi\n",
    "f() ",
    "{ ",
    "; }\n",
    "for x in ",
    "; do ",
    "; done\n",
    "x=",
]


def run_everywhere(line: str, value: object, folder: Path) -> None:
    try:
        filled = put_user_data(line.replace("@", REFERENCE), {"d": value})
    except InputError:
        return
    for shell in SHELLS:
        subprocess.run(
            [shell, "-c", filled],
            capture_output=True,
            check=False,
            cwd=folder,
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
        assert not (folder / "broken").exists(), (shell, filled)


@pytest.mark.parametrize("line", LINES)
def test_no_value_runs_in_a_line_that_is_hard_to_read(line: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        run_everywhere(line, value, tmp_path)


@pytest.mark.parametrize("part", range(4))
def test_no_value_runs_in_any_line(part: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("lines")

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14), st.sampled_from(HOSTILE))
    def attack(pieces: list[str], value: object) -> None:
        run_everywhere(
            "".join([*pieces, "@" if part % 2 else "'@'", *pieces[::-1]][: 20 + part]), value, folder
        )

    attack()
