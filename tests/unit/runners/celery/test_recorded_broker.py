"""A broker's URL in the record of a run: without its password, which comes from the configuration again."""

import pytest

from joblens.model.errors import InputError
from joblens.runners.celery.broker_url import broker_of_run, recorded_broker


@pytest.mark.parametrize(
    ("url", "recorded"),
    [
        ("redis://host:6379/1", "redis://host:6379/1"),
        ("redis://:geheim@host:6379/1", "redis://:***@host:6379/1"),
        ("amqp://ann:p%40ss@host/vhost", "amqp://ann:***@host/vhost"),
        ("rediss://u:x@[::1]:6379/0?ssl_cert_reqs=none", "rediss://u:***@[::1]:6379/0?ssl_cert_reqs=none"),
        ("redis://host/0?password=abc&db=3", "redis://host/0?password=***&db=3"),
        ("redis://host/0?auth_token=abc", "redis://host/0?auth_token=***"),
        (
            "sentinel://:x@a:26379/0;sentinel://:y@b:26379?master_name=m",
            "sentinel://:***@a:26379/0;sentinel://:***@b:26379?master_name=m",
        ),
        ("redis+socket://:geheim@/run/redis.sock", "redis+socket://:***@/run/redis.sock"),
        ("redis+socket:///run/redis.sock?virtual_host=2", "redis+socket:///run/redis.sock?virtual_host=2"),
        ("/shared/broker", "/shared/broker"),
    ],
)
def test_the_record_has_no_password(url: str, recorded: str) -> None:
    assert recorded_broker(url) == recorded
    assert recorded_broker(recorded) == recorded
    assert broker_of_run(recorded, url) == url


def test_a_relative_folder_is_recorded_whole(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert recorded_broker("./broker") == f"{tmp_path}/broker"


def test_one_without_a_password_needs_no_configuration() -> None:
    assert broker_of_run("redis://host:6379/1", None) == "redis://host:6379/1"
    assert broker_of_run("redis://host:6379/1", "redis://other") == "redis://host:6379/1"


def test_the_password_is_that_of_the_configured_broker_of_the_same_host_and_user() -> None:
    configured = "redis://ann:s%3Ac@host:6379/0"
    assert broker_of_run("redis://ann:***@host:6379/7", configured) == "redis://ann:s%3Ac@host:6379/7"


@pytest.mark.parametrize(
    "configured",
    [None, "redis://ann:pw@other:6379/0", "redis://bob:pw@host:6379/0", "redis://ann@host:6379/0"],
)
def test_a_missing_password_is_an_error_that_says_what_to_do(configured: str | None) -> None:
    with pytest.raises(InputError) as caught:
        broker_of_run("redis://ann:***@host:6379/0", configured)
    text = f"{caught.value} {caught.value.hint}"
    assert "redis://ann@host:6379/0" in text
    assert "JOBLENS_QUEUE_BROKER" in text
    assert "pw" not in text
