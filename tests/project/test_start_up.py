"""Starting joblens costs little because it imports little."""

import subprocess
import sys
from pathlib import Path

import pytest

from joblens import __version__
from tests.conftest import XDG_FOLDERS

MOST_MODULES = 120  # each costs a start 0.1 ms or more


def modules_after(*arguments: str) -> set[str]:
    return modules_of(f"from joblens.__main__ import main\nassert main({list(arguments)!r}) == 0")


def modules_of(statements: str) -> set[str]:
    """Those that are loaded after a program of these."""
    script = f"{statements}\nimport sys\nsys.stderr.write('\\n'.join(sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_printed_without_importing_anything_but_joblens(option: str) -> None:
    loaded = modules_after(option)
    assert "joblens.__main__" in loaded
    # An interpreter with .pth files in its site-packages loads some of them by itself.
    loaded -= modules_of("pass")
    assert not loaded & {"click", "rich", "yaml", "apsw", "msgspec", "typing", "re"}


def test_help_imports_nothing_heavy() -> None:
    loaded = modules_after("--help")
    assert "click" in loaded
    heavy = {
        "rich",
        "yaml",
        "apsw",
        "asyncio",
        "logging",
        "subprocess",
        "sqlite3",
        "pyarrow",
        "ray",
        "celery",
    }
    assert not loaded & heavy


def test_python_dash_m_joblens_works() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "joblens", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"joblens {__version__}\n"


def loaded_by(*arguments: str) -> set[str]:
    """Modules that a command line imports."""
    command = [sys.executable, "-X", "importtime", "-m", "joblens", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_a_plain_job_imports_few_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOBLENS_STORE", raising=False)
    for variable, folder in XDG_FOLDERS.items():
        monkeypatch.setenv(variable, str(tmp_path / folder))
    loaded_by("run", "--", "true")  # creates the store, which takes more
    loaded = loaded_by("run", "--", "true")
    assert not (loaded - modules_of("pass")) & {"datetime", "uuid", "decimal", "queue", "msgspec.inspect"}
    ours = {name for name in loaded if name.partition(".")[0] == "joblens"}
    if "joblens.probes.gpu.nvml" in ours:
        pytest.skip("a machine with a GPU imports what measures it, too")
    assert "joblens.agent.session.session" in ours
    assert len(ours) <= MOST_MODULES, sorted(ours)


def test_a_job_without_probes_imports_nothing_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "jobs.db"))
    loaded = loaded_by("run", "--probes", "none", "--", "true")
    assert "joblens.agent.session.session" in loaded
    instruments = ("endpoints", "gpu", "hardware", "memory", "network", "threads")
    assert not loaded & {f"joblens.agent.instruments.{name}" for name in instruments}
    assert not loaded & {
        "ctypes",
        "joblens.probes.network.cgroup_network",
        "joblens.agent.instruments.network",
    }


def test_a_store_in_the_environment_is_read_without_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "jobs.db"))
    loaded = loaded_by("run", "--", "true")
    assert "joblens.spec.settings.config" in loaded
    assert not loaded & {"joblens.spec.formats.yaml_reader"}


def test_a_job_imports_telemetry_only_where_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "jobs.db"))
    sinks = {f"joblens.stores.sinks.{name}" for name in ("gpu_job_map", "open_lineage", "otel", "queued")}
    loaded = loaded_by("run", "--", "true") - modules_of("pass")
    assert not loaded & {*sinks, "joblens.model.jobs.trace", "opentelemetry", "urllib"}
    monkeypatch.setenv("JOBLENS_LINEAGE_FILE", str(tmp_path / "events.jsonl"))
    assert "joblens.stores.sinks.open_lineage" in loaded_by("run", "--", "true")


@pytest.mark.needs("uplot")
def test_the_dashboard_takes_uplot_from_its_package_without_importing_it() -> None:
    """That package imports numpy: 20 MB that a server does not need."""
    loaded = modules_of("from joblens.app.dashboard.bundle import assets\nassets()")
    assert "joblens.app.dashboard.bundle" in loaded
    assert not loaded & {"uplot", "numpy"}
