"""How a job is told which GPUs are its own."""


def device_env(devices: tuple[str, ...]) -> dict[str, str]:
    listed = ",".join(devices)
    return {
        "CUDA_VISIBLE_DEVICES": listed,
        "HIP_VISIBLE_DEVICES": listed,
        "NVIDIA_VISIBLE_DEVICES": listed,
        "JOBLENS_GPUS": listed,
    }
