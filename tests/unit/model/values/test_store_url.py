"""Names of stores, and what of them may be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.settings import has_password, is_postgres, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/jobs", "postgresql://db/jobs"),
        ("postgres://db/jobs", "postgresql://db/jobs"),
        ("POSTGRES://ann@db:5432/jobs", "postgresql://ann@db:5432/jobs"),
        ("postgresql://ann:s3cret@db/jobs", "postgresql://ann@db/jobs"),
        ("postgresql://ann:p@ss/w@db/jobs", "postgresql://ann@db/jobs"),
        ("postgresql:///jobs?host=/run/pg&password=x", "postgresql:///jobs?host=/run/pg"),
        ("postgresql://db/jobs?password=x", "postgresql://db/jobs"),
        ("postgresql://ann:what?@db/jobs?port=5", "postgresql://ann@db/jobs?port=5"),
        ("postgresql://ann@db/jobs?password=x@y&port=5", "postgresql://ann@db/jobs?port=5"),
        ("/data/a:b@c.db", "/data/a:b@c.db"),
        ("sqlite:///data/x.db", "sqlite:///data/x.db"),
    ],
)
def test_a_store_is_named_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ann:x@db/jobs", True),
        ("postgres://ann@db/jobs", False),
        ("postgresql:///jobs?password=x", True),
        ("/a:b@c", False),
    ],
)
def test_whether_there_is_a_password_is_known(url: str, expected: bool) -> None:
    assert has_password(url) is expected


def test_only_urls_of_postgresql_are_that() -> None:
    assert is_postgres("postgres://x")
    assert is_postgres("PostgreSQL://x")
    assert not is_postgres("postgresql.db")
    assert not is_postgres("redis://x")


@given(st.text(st.characters(codec="ascii"), min_size=8))
def test_no_password_stays_in_a_name(password: str) -> None:
    assert password not in without_password(f"postgresql://u:{password}@h/d").removeprefix("postgresql://")
