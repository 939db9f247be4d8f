"""What jobs of a run are told of the store."""

from msgspec.structs import replace

from joblens.app.wiring.drivers import store_for_jobs
from joblens.model.settings import Settings, StoreSettings

URL = "postgresql://joe:hunter2@/jobs?host=/run"
NAME = "postgresql://joe@/jobs?host=/run"
SETTINGS = replace(Settings(), store=StoreSettings(url=URL))


def test_jobs_learn_no_password_that_they_do_not_have_already() -> None:
    assert store_for_jobs(SETTINGS, is_elsewhere=False, environ={}) == NAME
    other = {"JOBLENS_STORE": "postgresql://joe:other@/jobs?host=/run"}
    assert store_for_jobs(SETTINGS, is_elsewhere=False, environ=other) == NAME


def test_jobs_keep_what_their_user_has_set_for_himself_where_he_runs_them() -> None:
    for name in ("JOBLENS_STORE", "JOBLENS_STORE_URL"):
        assert store_for_jobs(SETTINGS, is_elsewhere=False, environ={name: URL}) == URL
        assert store_for_jobs(SETTINGS, is_elsewhere=True, environ={name: URL}) == NAME
