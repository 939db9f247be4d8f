import json
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.jobs.job import Job
from joblens.model.redaction.names import is_allowed_env, is_secret_name
from joblens.model.redaction.secrets import (
    REDACTED,
    redact_address,
    redact_argv,
    redact_env,
    redact_job,
    redact_params,
    redact_text,
    secret_values,
)

# Long enough not to turn up by chance in the rest of the text.
secrets = st.text(alphabet="abcdefghjkmnpqrstuvwxyzABCDEFGH23456789_.~", min_size=10, max_size=30)


@pytest.mark.parametrize(
    "name",
    [
        *("password", "DB_PASSWORD", "PGPASSWORD", "dbPassword", "--db-password", "MYSQL_PWD", "passphrase"),
        *("token", "GITHUB_TOKEN", "accessToken", "auth_token", "HF_TOKEN", "apiKey", "API_KEY", "api-key"),
        *("AWS_SECRET_ACCESS_KEY", "client_secret", "private_key", "SSH_KEY", "credentials", "Authorization"),
        *(
            "cookie",
            "jwt",
            "db_pass",
            "OPENAI_API_KEY",
            "api_tokens",
            "passwords",
            "accessKeys",
            "auth_tokens",
        ),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("mesh_size", "max_tokens", "num_tokens", "tokenizer", "pad_token", "eos_token_id", "token_count"),
        *(
            "author",
            "PWD",
            "OLDPWD",
            "key",
            "sort_key",
            "primary_key",
            "keyboard",
            "bypass",
            "passes",
            "compass",
        ),
        *("--password-file", "--no-auth", "--password-stdin", "secret_name", "monkey", "auth_method", ""),
    ],
)
def test_names_that_only_look_like_secrets_are_left(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("argv", "kept"),
    [
        (["run", "--password=hunter2!"], ["run", "--password=***"]),
        (["run", "--password", "hunter2!", "file"], ["run", "--password", "***", "file"]),
        (["env", "DB_TOKEN=hunter2!", "cmd"], ["env", "DB_TOKEN=***", "cmd"]),
        (["git", "clone", "https://me:hunter2!@host/x"], ["git", "clone", "https://me:***@host/x"]),
        (["git", "clone", "https://me:hunt@er2!@host/x"], ["git", "clone", "https://me:***@host/x"]),
        (["git", "clone", "https://a@b:hunter2!@host/x"], ["git", "clone", "https://a@b:***@host/x"]),
        (["git", "clone", "https://hunter2!@hunter2!@host/x"], ["git", "clone", "https://***@host/x"]),
        (["curl", "-H", "Authorization: Bearer abc.def"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["curl", "-u", "me:hunter2!", "http://x"], ["curl", "-u", "me:***", "http://x"]),
        (["curl", "-ume:hunter2!", "http://x"], ["curl", "-ume:***", "http://x"]),
        (["/usr/bin/mysql", "-phunter2!", "-h", "db"], ["/usr/bin/mysql", "-p***", "-h", "db"]),
        (
            ["sshpass", "-p", "hunter2!", "ssh", "-p", "22", "h"],
            ["sshpass", "-p", "***", "ssh", "-p", "22", "h"],
        ),
        (["docker", "login", "-p", "hunter2!"], ["docker", "login", "-p", "***"]),
        (["redis-cli", "-a", "hunter2!", "ping"], ["redis-cli", "-a", "***", "ping"]),
        (["curl", "-sSu", "me:hunter2!", "http://x"], ["curl", "-sSu", "me:***", "http://x"]),
        (["sh", "-c", "PASSWORD=hunter2! run"], ["sh", "-c", "PASSWORD=*** run"]),
        (["sh", "-c", "run --token 'hunter2! x' y"], ["sh", "-c", "run --token '***' y"]),
        (["get", "http://h/?token=hunter2!&n=1"], ["get", "http://h/?token=***&n=1"]),
        (["put", '{"api_key": "hunter2!", "n": 1}'], ["put", '{"api_key": "***", "n": 1}']),
        (
            ["sh", "-c", r'put "{\"api_key\": \"hunter2! x\", \"n\": 1}"'],
            ["sh", "-c", r'put "{\"api_key\": \"***\", \"n\": 1}"'],
        ),
    ],
)
def test_secrets_on_a_command_line_are_taken_out(argv: list[str], kept: list[str]) -> None:
    assert list(redact_argv(argv)) == kept


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "line", ['DB_PASSWORD="it\'s hunter2" run', r'TOKEN="a\"b hunter2" run', '{"api_key": "a b hunter2"}']
)
def test_quoted_secrets_are_taken_out_of_json_in_json(line: str, levels: int) -> None:
    for _ in range(levels):
        line = json.dumps({"line": line})
    shown = redact_text(line)
    assert "hunter2" not in shown
    for _ in range(levels):
        shown = json.loads(shown)["line"]
    assert "***" in shown


@pytest.mark.parametrize(
    "text", ['PASSWORD="a b hunter2', "PASSWORD='a b hunter2", r"\"token\": \"a b hunter2"]
)
def test_secrets_whose_closing_quote_was_cut_off_are_taken_out(text: str) -> None:
    assert "hunter2" not in redact_text(f"{text}\nnext line")
    assert redact_text(f"{text}\nnext line").endswith("\nnext line")


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--max-tokens", "512", "--tokenizer", "gpt2", "--pad_token", "<pad>"],
        ["ffmpeg", "-i", "in.mp4", "-pass", "2", "out.mp4"],
        ["docker", "run", "-p", "8080:80", "nginx"],
        ["mysql", "-p", "-h", "db"],
        ["ssh-keygen", "-f", "key.pub"],
        ["sort", "--key=2", "authors.txt"],
        ["curl", "-u", "me", "https://example.org/a?page=2"],
        ["run", "--password-file", "/run/secrets/x"],
        ["run", "--password", "--verbose", "file"],
        ["echo", "the", "password", "is", "asked", "for"],
        ["git", "clone", "ssh://git@host/x.git"],
    ],
)
def test_commands_without_secrets_stay_as_they_are(argv: list[str]) -> None:
    assert list(redact_argv(argv)) == argv


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-" + "a1B2" * 5,
        "xoxb-123456789012-abcdef",
        "sk-" + "a1B2" * 8,
        "hf_" + "a1B2" * 8,
        "AIza" + "a1B2" * 9,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "Bearer abcdefgh12345678",
    ],
)
def test_tokens_are_known_by_their_form_wherever_they_stand(secret: str) -> None:
    assert secret.rsplit(maxsplit=1)[-1] not in redact_text(f"see {secret} there")
    assert redact_text(f"see {secret} there").endswith(" there")


def test_a_private_key_is_taken_out_whole() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----\nafter"
    assert redact_text(key) == ("-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nafter")


def test_a_private_key_that_was_cut_off_is_taken_out_too() -> None:
    assert redact_text("-----BEGIN PRIVATE KEY-----\nMIIEow") == "-----BEGIN PRIVATE KEY-----***"


templates = st.sampled_from(
    [
        ["run", "--password={}"],
        ["run", "--api-key", "{}"],
        ["env", "PGPASSWORD={}", "psql"],
        ["sh", "-c", "export TOKEN={}; run"],
        ["sh", "-c", 'run --client-secret "{}" --n 3'],
        ["curl", "https://bob:{}@example.org/"],
        ["curl", "-H", "Authorization: Bearer {}"],
        ["get", "https://example.org/?a=1&access_token={}&b=2"],
        ["post", '{{"password": "{}"}}'],
        ["curl", "--user", "bob:{}"],
        ["mysql", "-p{}"],
    ]
)


@given(templates, secrets)
def test_no_secret_survives_on_a_command_line(template: list[str], secret: str) -> None:
    argv = [word.format(secret) for word in template]
    assert not any(secret in word for word in redact_argv(argv))


@given(templates, secrets)
def test_redacting_twice_changes_nothing(template: list[str], secret: str) -> None:
    once = redact_argv([word.format(secret) for word in template])
    assert redact_argv(once) == once


@given(st.lists(st.text(max_size=30), max_size=6))
def test_any_command_line_keeps_its_number_of_words(argv: list[str]) -> None:
    assert len(redact_argv(argv)) == len(argv)


@given(st.text(alphabet=" abcdefgh0123456789/.-_=", max_size=60))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_parameters_are_redacted_by_name_at_any_depth() -> None:
    params = {
        "mesh": 64,
        "db": {"user": "bob", "password": "hunter2!"},
        "hosts": [{"token": "hunter2!"}, "https://a:hunter2!@h"],
        "use_auth": True,
        "max_tokens": 512,
        "pin_secret": 1234,
    }
    assert redact_params(params) == {
        "mesh": 64,
        "db": {"user": "bob", "password": REDACTED},
        "hosts": [{"token": REDACTED}, "https://a:***@h"],
        "use_auth": True,
        "max_tokens": 512,
        "pin_secret": REDACTED,
    }


def test_only_listed_variables_keep_their_value() -> None:
    env = {"OMP_NUM_THREADS": "4", "LC_ALL": "C", "MY_SETTING": "x", "EMPTY": "", "SLURM_JWT": "abc"}
    assert redact_env(env) == {
        "OMP_NUM_THREADS": "4",
        "LC_ALL": "C",
        "MY_SETTING": REDACTED,
        "EMPTY": "",
        "SLURM_JWT": REDACTED,
    }


def test_a_listed_variable_is_still_searched_for_patterns() -> None:
    assert redact_env({"PYTHON_INDEX": "https://a:hunter2!@h/simple"}) == {
        "PYTHON_INDEX": "https://a:***@h/simple"
    }


def test_a_secret_name_beats_the_list() -> None:
    assert is_allowed_env("RAY_ADDRESS")
    assert not is_allowed_env("RAY_AUTH_TOKEN")


def test_a_job_is_redacted_in_all_its_parts() -> None:
    job = Job(
        uuid="u",
        argv=("run", "--password", "hunter2!"),
        created_at_us=1,
        params={"token": "hunter2!"},
        env={"DB_PASSWORD": "hunter2!"},
        notify=("curl", "https://hooks.slack.com/services/T0/B0/hunter2!"),
    )
    assert "hunter2!" not in repr(redact_job(job))
    assert redact_job(job).uuid == "u"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("curl -u bob:hunter2! http://x; echo done", "curl -u bob:*** http://x; echo done"),
        ("curl -u 'bob:hunter2! x' http://x", "curl -u 'bob:***' http://x"),
        ('curl -u "bob:hunter2!" http://x', 'curl -u "bob:***" http://x'),
        ("cd /x && /usr/bin/mysql -phunter2! -h db <in >out", "cd /x && /usr/bin/mysql -p*** -h db <in >out"),
        ("mysql -p'hunter2! x'|wc -l", "mysql -p***|wc -l"),
        ("echo $(redis-cli -a hunter2! ping)", "echo $(redis-cli -a *** ping)"),
        ("echo `redis-cli -a hunter2!`", "echo `redis-cli -a ***`"),
        ("true\ndocker login -u me -p hunter2!\n", "true\ndocker login -u me -p ***\n"),
        ("ssh host \"mysql -phunter2! -e 'select 1'\"", "ssh host \"mysql -p*** -e 'select 1'\""),
        ("sshpass -p hunter2! ssh -p 22 host", "sshpass -p *** ssh -p 22 host"),
    ],
)
def test_options_of_programs_are_known_inside_a_shell_line(line: str, kept: str) -> None:
    assert redact_argv([line]) == (kept,)
    assert redact_argv(["bash", "-euc", line]) == ("bash", "-euc", kept)
    assert redact_params({"command": line}) == {"command": kept}
    assert redact_text(kept) == kept


@pytest.mark.parametrize(
    "line",
    [
        "docker run -p 8080:80 image && docker ps",
        "mysql -p -h db; ssh -p 22 host 'ls -a'",
        "curl -u bob http://x | grep -p 'x y'",
        "echo it's -p fine; curl http://x",
        "mkdir -p curl && cp -u a:b c",
    ],
)
def test_a_shell_line_without_secrets_stays_as_it_is(line: str) -> None:
    assert redact_argv([line]) == (line,)


@given(st.text(alphabet=" ab-pu:'\"\\;|&()<>`\n$", max_size=60))
def test_any_shell_line_can_be_redacted_and_redacting_it_again_changes_nothing(text: str) -> None:
    line = f"curl {text}"
    once = redact_text(line)
    assert redact_text(once) == once


def test_names_tags_and_ids_of_a_job_are_searched_for_secrets() -> None:
    job = Job(
        uuid="a1",
        argv=("x",),
        created_at_us=0,
        name="load https://me:hunter2!@host/x",
        tool="x --token=hunter2!",
        script="y --password=hunter2!",
        tags=("nightly", "db=postgres://me:hunter2!@db/x"),
        external_id="run-token=hunter2!",
    )
    kept = redact_job(job)
    assert "hunter2!" not in str(kept)
    assert kept.tags == ("nightly", "db=postgres://me:***@db/x")
    assert kept.uuid == "a1"


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("https://bob:p@ss@example.org/x/y.git", "https://example.org/x/y.git"),
        ("https://tok3n@example.org/y.git", "https://example.org/y.git"),
        ("https://bob:p/ss@example.org:8443/y.git", "https://example.org:8443/y.git"),
        ("https://bob:p@ss/word@example.org/y.git", "https://***"),
        ("https://example.org:8443/a@b/y.git", "https://example.org:8443/a@b/y.git"),
        ('"https://bob:hush@example.org/y.git"', '"https://example.org/y.git"'),
        ("ssh://git@example.org:22/y.git", "ssh://example.org:22/y.git"),
        ("https://example.org/y.git?private_token=hush", "https://example.org/y.git?private_token=***"),
        ("https://example.org:8443/@scope/y.git", "https://example.org:8443/@scope/y.git"),
        ("git@example.org:x/y.git", "git@example.org:x/y.git"),
        ("/srv/y.git", "/srv/y.git"),
        ("file:///srv/a@b.git", "file:///srv/a@b.git"),
        ("", ""),
    ],
)
def test_an_address_is_kept_without_who_logs_in_there(address: str, kept: str) -> None:
    assert redact_address(address) == kept


def test_seeds_of_a_job_are_searched_for_secrets() -> None:
    job = Job(uuid="a1", argv=("x",), created_at_us=0, seeds={"seed": "7", "password_seed": "hunter2!"})
    assert redact_job(job).seeds == {"seed": "7"}


shapes = st.recursive(
    secrets,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from(["user", "value", "more"]), inner, min_size=1)
    ),
    max_leaves=6,
)


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return [leaf for inner in value for leaf in _leaves(inner)] if isinstance(value, list) else [str(value)]


@given(shapes)
def test_a_secret_of_any_shape_goes_and_its_shape_stays(value: object) -> None:
    params = {"api_token": value, "runs": [{"db_password": value, "n": 4711}]}
    redacted = redact_params(params)
    assert set(_leaves(redacted)) == {REDACTED, "4711"}
    assert len(_leaves(redacted)) == len(_leaves(params))


@given(shapes)
def test_a_secret_of_any_shape_is_hidden_wherever_else_it_occurs(value: object) -> None:
    params = {"api_token": value}
    words = [f"--data={leaf}" for leaf in _leaves(value)]
    job = Job(uuid="u", argv=("use", *words), created_at_us=0, name=" ".join(words), tags=(words[0],))
    hidden = secret_values(params).hide_in_job(job)
    texts = " ".join((*hidden.argv, hidden.name, *hidden.tags))
    assert not [leaf for leaf in _leaves(value) if leaf in texts]


@pytest.mark.parametrize("text", ["token: [one, two]", '"tokens": 1, "api_token": ["one", "two"]'])
def test_a_list_in_a_text_is_hidden_whole(text: str) -> None:
    shown = redact_text(text)
    assert "***" in shown
    assert "two" not in shown


@pytest.fixture
def little_cpu() -> Iterator[None]:
    """Fails a test that takes 20 s of CPU time."""

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail("this took 20 s of CPU time")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


# Patterns that took seconds for 24 KB, and minutes for this, read each part of a text once.
@pytest.mark.parametrize(
    "unit",
    [
        *(
            "pass",
            "--pass-",
            "key:",
            "token:***:",
            "eyJ-",
            "eyJaaaaaaaa.",
            "sk-",
            "a.",
            "a://b:c",
            "password ",
        ),
        *('password="', "curl -u a ", '"key', 'key="\\\n', "docker login -p "),
    ],
)
def test_a_long_text_is_looked_through_in_one_go(unit: str, little_cpu: None) -> None:
    text = unit * (200_000 // len(unit)) + " tail://"
    redacted = redact_argv(["run", text, "--password", "hunter2!"])
    assert redacted[-1] == REDACTED
    assert redact_text(text)[-3:] in ("://", REDACTED)


def test_a_secret_behind_names_that_hide_nothing_is_found() -> None:
    assert redact_text("key: key: password: hunter2! key: x") == f"key: key: password: {REDACTED} key: x"
    assert redact_text("token:***:password=hunter2!") == "token:***:password=***"
