"""Stands where nvidia-ml-py does: GPUs as a test sets them up, or answers as they were recorded."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NOT_FOUND = 3, 6
_TEXTS = {NOT_SUPPORTED: "Not Supported", NOT_FOUND: "Not Found", 9: "Driver Not Loaded", 15: "GPU is lost"}


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or _TEXTS.get(value, f"error {value}"))
        self.value = value


class FakeGpu:
    """`processes`: pid -> bytes; `samples`: what NVML hands over of them. `answers` take the place of what is
    told otherwise, by call; an exception is raised."""

    def __init__(self, uuid: str, **answers: Any) -> None:
        self.uuid = uuid
        self.processes: dict[int, int | None] = {}
        self.samples: list[tuple[int, int, int]] = []  # pid, stamp in microseconds, percent
        self.energy_mj = 5_000_000
        self.instances: list[FakeGpu] = []
        self.answers = answers
        self.asked: list[str] = []

    def answer(self, call: str, arguments: tuple[Any, ...]) -> Any:
        self.asked.append(call)
        if call in self.answers:
            result = self.answers[call]
            if isinstance(result, Exception):
                raise result
            return result
        return self._answer(call, arguments)

    def _answer(self, call: str, arguments: tuple[Any, ...]) -> Any:
        match call:
            case "nvmlDeviceGetUUID":
                return self.uuid
            case "nvmlDeviceGetComputeRunningProcesses":
                return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.processes.items()]
            case "nvmlDeviceGetProcessUtilization":
                new = [sample for sample in self.samples if sample[1] > arguments[0]]
                if not new:
                    raise NVMLError(NOT_FOUND)
                return [
                    SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=share, encUtil=0, decUtil=0)
                    for pid, stamp, share in new
                ]
            case "nvmlDeviceGetTotalEnergyConsumption":
                return self.energy_mj
            case "nvmlDeviceGetMigMode":
                return [int(bool(self.instances)), 0]
            case "nvmlDeviceGetMaxMigDeviceCount":
                return len(self.instances) + 1
            case "nvmlDeviceGetMigDeviceHandleByIndex":
                if arguments[0] >= len(self.instances):
                    raise NVMLError(NOT_FOUND)
                return self.instances[arguments[0]]
            case _:
                return _same_for_all(call)


def _same_for_all(call: str) -> Any:
    values = {
        "nvmlDeviceGetName": b"NVIDIA H200",
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:19:00.0"),
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1000, used=300, free=700),
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=21),
        "nvmlDeviceGetPowerUsage": 512_000,
        "nvmlDeviceGetTemperature": 55,
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 4,
        "nvmlDeviceGetEncoderUtilization": [0, 16_000],
        "nvmlDeviceGetDecoderUtilization": [0, 16_000],
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetPcieThroughput": 2500,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }
    if call not in values:
        raise NVMLError(NOT_SUPPORTED)
    return values[call]


class FakeNvml:
    NVMLError = NVMLError

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus
        self.is_open = True

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802 - as the binding calls it
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if not call.startswith("nvmlDevice"):
            raise AttributeError(call)
        return lambda gpu, *arguments: gpu.answer(call, arguments)


class RecordedNvml:
    """Gives the answers of a recording (bench/nvml_recording.py), each call's in the order they came."""

    NVMLError = NVMLError

    def __init__(self, calls: list[list[Any]]) -> None:
        self._answers: dict[tuple[str, str], list[Any]] = {}
        for name, device, arguments, answer, *_ in calls:
            self._answers.setdefault((name, _key(device, arguments, name)), []).append(answer)

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if not call.startswith("nvml"):
            raise AttributeError(call)

        def ask(*arguments: Any) -> Any:
            device, rest = _split(arguments)
            answers = self._answers.get((call, _key(device, rest, call)))
            if not answers:
                raise NVMLError(NOT_SUPPORTED, f"{call}{rest}: not in the recording")
            return _answer(answers.pop(0) if len(answers) > 1 else answers[0])

        return ask


class _Handle(str):
    __slots__ = ()


def _split(arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
    if arguments and isinstance(arguments[0], _Handle):
        return str(arguments[0]), list(arguments[1:])
    return "", list(arguments)


def _key(device: str, arguments: list[Any], call: str) -> str:
    moments = call == "nvmlDeviceGetProcessUtilization"  # each is asked about another time
    return f"{device}{'' if moments else arguments}"


def _answer(result: dict[str, Any]) -> Any:
    if "error" in result:
        raise NVMLError(result["error"], result["text"])
    if "handle" in result:
        return _Handle(result["handle"])
    if "list" in result:
        return [SimpleNamespace(**item) if isinstance(item, dict) else item for item in result["list"]]
    return SimpleNamespace(**result["fields"]) if "fields" in result else result["value"]
