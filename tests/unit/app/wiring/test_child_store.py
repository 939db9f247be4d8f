"""A password of the store or the broker reaches the process that needs it, and none of its jobs."""

from msgspec.structs import replace

from joblens.app.wiring.background_process import (
    keep_passwords_from_jobs,
    store_arguments,
    store_environment,
    store_of_arguments,
)
from joblens.model.settings import Settings, StoreSettings

URL = "postgresql://joe:hunter2@/jobs?host=/run"
SETTINGS = replace(Settings(), store=StoreSettings(url=URL))


def test_a_child_learns_the_password_and_hands_it_to_nobody() -> None:
    (_, name), env = store_arguments(SETTINGS), store_environment(SETTINGS)
    assert "hunter2" not in name
    assert store_of_arguments(name, env) == URL
    assert env == {}


def test_a_store_without_a_password_needs_no_variable() -> None:
    plain = replace(SETTINGS, store=StoreSettings(url="postgresql://joe@/jobs?host=/run"))
    assert store_environment(plain) == {}


def test_jobs_of_a_worker_see_where_store_and_broker_are_but_no_password() -> None:
    env = {"JOBLENS_STORE": URL, "JOBLENS_STORE_URL": URL, "JOBLENS_QUEUE_BROKER": "redis://:hunter2@h:1/0"}
    keep_passwords_from_jobs(env)
    assert env == {
        "JOBLENS_STORE": "postgresql://joe@/jobs?host=/run",
        "JOBLENS_STORE_URL": "postgresql://joe@/jobs?host=/run",
        "JOBLENS_QUEUE_BROKER": "redis://h:1/0",
    }


def test_what_has_no_password_stays() -> None:
    env = {"JOBLENS_STORE": "/data/jobs.db", "JOBLENS_QUEUE_BROKER": "amqp://h", "PATH": "/bin"}
    before = dict(env)
    keep_passwords_from_jobs(env)
    empty: dict[str, str] = {}
    keep_passwords_from_jobs(empty)
    assert (env, empty) == (before, {})
