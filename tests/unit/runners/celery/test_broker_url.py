import pytest

from joblens.model.errors import InputError
from joblens.runners.celery.broker_url import check_queue, parse_broker

HOME_FOLDER = "/var/lib/joblens/queue"


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("redis://host:6379/2", "redis", "redis://host:6379/2"),
        ("redis://user:s3cret@host/1", "redis", "redis://host/1"),
        ("rediss://:s3cret@host:6380", "redis", "rediss://host:6380"),
        ("redis://[::1]:6379/0", "redis", "redis://[::1]:6379/0"),
        ("redis+socket:///run/redis.sock", "redis", "redis+socket:///run/redis.sock"),
        ("unix:///run/redis.sock?db=3", "redis", "redis+socket:///run/redis.sock"),
        ("amqp://guest:s3cret@host:5672//", "amqp", "amqp://host:5672"),
        ("amqps://host/jobs", "amqp", "amqps://host/jobs"),
        (
            "sentinel://a:26379/0;sentinel://b:26379?master_name=m",
            "redis",
            "sentinel://a:26379/0;sentinel://b:26379",
        ),
        ("/shared/queue", "folder", "/shared/queue"),
        ("file:///shared/queue", "folder", "/shared/queue"),
        ("", "folder", HOME_FOLDER),
        (None, "folder", HOME_FOLDER),
    ],
)
def test_a_broker_is_known_by_its_url_and_shown_without_user_and_password(
    text: str | None, kind: str, shown: str
) -> None:
    broker = parse_broker(text, HOME_FOLDER)

    assert (broker.kind, broker.shown) == (kind, shown)
    assert "s3cret" not in repr(broker)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("sqs://host", "no broker is known by sqs://", "redis://"),
        ("postgresql://host/db", "no broker is known by postgresql://", "redis://"),
        ("localhost:6379", "names no broker by itself", "redis://localhost:6379"),
        ("redis", "'redis' is no broker", "./redis"),
        ("redis:///0", "names no host", "redis://HOST"),
        ("redis://host/jobs", "a Redis database is a number", "HOST:PORT/0"),
        ("redis://host:port/0", "the port is not a number", "redis://HOST"),
        ("redis://u:s3cret@host:99999/0", "the port is not a number", "redis://HOST"),
        ("redis+socket://host/path", "three slashes", "redis+socket:///run"),
        ("redis+socket:///run/s?virtual_host=x", "a number", "virtual_host=0"),
        ("sentinel://host:26379", "has to name the master", "master_name=NAME"),
        ("file://host/folder", "has no host", "/FOLDER"),
    ],
)
def test_what_is_no_broker_is_refused_with_what_to_write_instead(text: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_broker(text, HOME_FOLDER)

    assert message in str(refused.value)
    assert hint in refused.value.hint
    assert "s3cret" not in f"{refused.value} {refused.value.hint}"


def test_a_file_is_no_folder_for_messages() -> None:
    with pytest.raises(InputError, match="is not a directory"):
        parse_broker("/etc/passwd", HOME_FOLDER)


def test_a_password_is_cut_out_of_foreign_messages_also_as_it_was_quoted() -> None:
    broker = parse_broker("redis://:a%2Fb-secret@host", HOME_FOLDER)

    assert broker.without_secrets("no: a%2Fb-secret, a/b-secret") == "no: ***, ***"


def test_certificates_are_checked_unless_it_is_said_otherwise() -> None:
    assert "ssl_cert_reqs=required" in parse_broker("rediss://host", HOME_FOLDER).url
    assert parse_broker("rediss://host?ssl_cert_reqs=none", HOME_FOLDER).url.endswith("ssl_cert_reqs=none")


@pytest.mark.parametrize("name", ["default", "gpu-2", "a.b_c", "0"])
def test_plain_words_are_names_of_queues(name: str) -> None:
    assert check_queue(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b", "ä", "x" * 101, "a\nb"])
def test_what_could_lead_elsewhere_is_no_name_of_a_queue(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a queue"):
        check_queue(name)
