import pytest

from joblens.agent.in_process import portable_meter
from joblens.agent.in_process.portable_meter import PortableMeter, PortableWindow


def test_the_highest_look_stays_when_looks_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([5, 90, *[6] * 40])
    monkeypatch.setattr(portable_meter, "_MOST_KEPT", 4)
    monkeypatch.setattr(PortableMeter, "_read", lambda meter: {"memory_anon_bytes": next(sizes)})
    meter = PortableMeter()
    window: PortableWindow = meter.begin(1000.0, lambda first, samples: None)
    for _ in range(12):
        portable_meter._take(window, meter._read(), 1.0)
    usage = meter.end(window).usage
    assert 90 not in [sample.memory_anon_bytes for sample in window.kept]
    assert usage.memory_peak_bytes == 90
