"""What an engine is told, and how the client gets its order."""

from msgspec.structs import replace

from joblens.agent.containers.protocol import (
    ENV_PREFIX,
    ContainerOrder,
    as_variables,
    body_for,
    container_env,
    order_from,
)
from joblens.model.jobs.job import ContainerJob

ORDER = ContainerOrder(
    uuid="u-1",
    container=ContainerJob(
        image="img:2",
        volumes=("/here:/there:ro", "kept:/data"),
        devices=("/dev/fuse:/dev/other:r",),
        network="none",
        user="7:8",
        workdir="/work",
        entrypoint="/bin/tool",
    ),
    note_path="/spool/u-1.container",
    cgroup_parent="/joblens-0/u-1",
    cpus=1.5,
    memory_bytes=1 << 30,
    pids=9,
    gpus=2,
    cpu_list="0-1",
)
BARE = ContainerOrder(uuid="u-2", container=ContainerJob(image="img"), note_path="/n")


def test_an_order_comes_out_of_the_environment_as_it_went_in() -> None:
    variables = {"PATH": "/bin", **as_variables(ORDER), f"{ENV_PREFIX}TOKEN": "hush"}
    assert order_from(variables) == ORDER
    assert container_env(variables) == {"TOKEN": "hush"}
    assert "hush" not in as_variables(ORDER)["JOBLENS_CONTAINER"]


def test_docker_is_reported_limits_places_and_what_to_run() -> None:
    body = body_for("docker", ORDER, ["-x", "1"], {"A": "b"}, is_terminal=True)
    host = body["HostConfig"]
    assert (body["Image"], body["Cmd"], body["Entrypoint"]) == ("img:2", ["-x", "1"], ["/bin/tool"])
    assert (body["User"], body["WorkingDir"], body["Env"], body["Tty"]) == ("7:8", "/work", ["A=b"], True)
    assert body["Labels"] == {"joblens.job": "u-1"}
    assert (host["CpuQuota"], host["CpuPeriod"], host["CpusetCpus"]) == (150_000, 100_000, "0-1")
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (1 << 30, 1 << 30, 9)
    assert (host["CgroupParent"], host["NetworkMode"]) == ("/joblens-0/u-1", "none")
    assert host["Binds"] == ["/here:/there:ro", "kept:/data"]
    assert host["Devices"] == [
        {"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/other", "CgroupPermissions": "r"}
    ]
    assert host["DeviceRequests"] == [{"Driver": "", "Count": 2, "Capabilities": [["gpu"]]}]


def test_podman_is_reported_the_same_in_its_own_form() -> None:
    body = body_for("podman", ORDER, ["-x"], {"A": "b"}, is_terminal=False)
    assert (body["image"], body["command"], body["entrypoint"]) == ("img:2", ["-x"], ["/bin/tool"])
    assert (body["user"], body["work_dir"], body["env"], body["terminal"]) == (
        "7:8",
        "/work",
        {"A": "b"},
        False,
    )
    assert body["resource_limits"] == {
        "cpu": {"quota": 150_000, "period": 100_000, "cpus": "0-1"},
        "memory": {"limit": 1 << 30, "swap": 1 << 30},
        "pids": {"limit": 9},
    }
    assert (body["cgroup_parent"], body["cgroups_mode"]) == ("/joblens-0/u-1", "no-conmon")
    assert body["netns"] == {"nsmode": "none"}
    assert body["mounts"] == [
        {"type": "bind", "source": "/here", "destination": "/there", "options": ["rbind", "ro"]}
    ]
    assert body["volumes"] == [{"Name": "kept", "Dest": "/data", "Options": []}]
    assert [device["path"] for device in body["devices"]] == [
        "/dev/fuse:/dev/other:r",
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1",
    ]


def test_what_nobody_asked_for_is_left_to_the_engine() -> None:
    docker = body_for("docker", BARE, [], {}, is_terminal=False)
    assert not {"Cmd", "Entrypoint", "User", "WorkingDir"} & docker.keys()
    assert docker["HostConfig"].keys() == {"Binds", "Devices", "LogConfig"}
    podman = body_for("podman", BARE, [], {}, is_terminal=False)
    assert not {"command", "resource_limits", "cgroup_parent", "netns", "mounts", "devices"} & podman.keys()


def test_networks_of_podman_by_kind_and_by_name() -> None:
    def network(mode: str) -> dict[str, object]:
        order = replace(BARE, container=ContainerJob(image="img", network=mode))
        body = body_for("podman", order, [], {}, is_terminal=False)
        return {name: body[name] for name in ("netns", "networks") if name in body}

    assert network("host") == {"netns": {"nsmode": "host"}}
    assert network("container:other") == {"netns": {"nsmode": "container", "value": "other"}}
    assert network("mine") == {"netns": {"nsmode": "bridge"}, "networks": {"mine": {}}}


def test_a_share_of_a_core_is_never_less_than_the_kernel_takes() -> None:
    body = body_for("docker", replace(BARE, cpus=0.001), [], {}, is_terminal=False)
    assert body["HostConfig"]["CpuQuota"] == 1000
