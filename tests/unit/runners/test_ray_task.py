"""The environment of jobs on a node of Ray is that of whoever started the node."""

import pytest

from joblens.runners.ray_task import without_rays_malloc

MARK = "RAY_LD_PRELOAD_ON_WORKERS"


def test_the_malloc_of_rays_own_servers_is_not_for_jobs() -> None:
    env = {"PATH": "/bin", "LD_PRELOAD": "/ray/libjemalloc.so", MARK: "0"}

    assert without_rays_malloc(env) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "env",
    [{"LD_PRELOAD": "/opt/own.so"}, {"LD_PRELOAD": "/opt/own.so", MARK: "1"}, {"MALLOC_CONF": "prof:true"}],
)
def test_what_whoever_started_the_node_wants_to_be_loaded_stays(env: dict[str, str]) -> None:
    assert without_rays_malloc(env) == env


def test_settings_of_that_malloc_go_with_it_and_others_stay() -> None:
    set_by_ray = {MARK: "0", "LD_PRELOAD": "/x", "MALLOC_CONF": "prof:true", "RAY_JEMALLOC_CONF": "prof:true"}

    assert without_rays_malloc(set_by_ray) == {"RAY_JEMALLOC_CONF": "prof:true"}
    assert without_rays_malloc(set_by_ray | {"MALLOC_CONF": "own:1"})["MALLOC_CONF"] == "own:1"
