import pytest

from joblens.agent.cgroups.placement import shared_parent
from joblens.agent.doctor.accounting import way_of
from joblens.model.capabilities import Way
from joblens.model.values.ids import new_uuid

MOUNT = "/sys/fs/cgroup"
LOGIN = f"{MOUNT}/user.slice/user-1000.slice/session-3.scope"
APP = f"{MOUNT}/user.slice/user-1000.slice/user@1000.service/app.slice"
SCOPE = f"{APP}/joblens-{new_uuid()}.scope"
JOB = f"{shared_parent(SCOPE)}/{new_uuid()}.12-34-4026531836-00000000_00000000"


@pytest.mark.parametrize(
    ("base", "own", "way"),
    [
        (SCOPE, LOGIN, Way.SCOPE),
        (JOB, JOB, Way.INSIDE_JOB),
        (JOB, f"{JOB}/joblens-self", Way.INSIDE_JOB),
        (
            f"{MOUNT}/user.slice/user-0.slice",
            f"{MOUNT}/user.slice/user-0.slice/session-1.scope",
            Way.OWN_GROUP,
        ),
        (f"{APP}/nightly.service", f"{APP}/nightly.service/joblens-self", Way.OWN_GROUP),
    ],
)
def test_a_job_group_shows_how_it_was_obtained(base: str, own: str, way: Way) -> None:
    group = f"{shared_parent(base)}/{new_uuid()}"
    found = way_of(group, own, is_configured=False, lacks_memory=False, mounts=[MOUNT])
    assert found is way


def test_a_group_without_the_memory_controller_counts_cpu_time_only() -> None:
    group = f"{shared_parent(LOGIN)}/{new_uuid()}"
    found = way_of(group, LOGIN, is_configured=False, lacks_memory=True, mounts=[MOUNT])
    assert found is Way.WITHOUT_CONTROLLERS


def test_a_configured_group_is_named_as_such() -> None:
    group = f"{shared_parent(SCOPE)}/{new_uuid()}"
    assert way_of(group, LOGIN, is_configured=True, lacks_memory=False, mounts=[MOUNT]) is Way.CONFIGURED
