"""A real exporter and a real Prometheus that scrapes it, for one test."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers import Server, free_port, own_server, skip_without


@contextlib.contextmanager
def exporter(*options: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """Yields the URL of the metrics, or unix:PATH."""
    command = [sys.executable, "-m", "joblens", "exporter", "--json", *options]
    started = {**os.environ, **(env or {})}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=started, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 60.0)[0], "the exporter did not start"
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr is not None else ""
            yield json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30.0) == 0


def scrape(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30.0) as answer:
        text: str = answer.read().decode()
        return text


class PrometheusServer(Server):
    """Scrapes one target every second."""

    name = "prometheus"
    target = ""
    token = ""

    @property
    def port(self) -> int:
        return int((self.folder / "port").read_text())

    def prepare(self) -> None:
        (self.folder / "port").write_text(str(free_port()))
        rules = Path(__file__).parent.parent / "contrib" / "prometheus" / "alerts.yml"
        (self.folder / "token").write_text(self.token)
        access = f"authorization: {{credentials_file: {self.folder}/token}}, " if self.token else ""
        (self.folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: ['{rules}']\n"
            f"scrape_configs: [{{job_name: joblens, {access}"
            f"static_configs: [{{targets: ['{self.target}']}}]}}]\n"
        )

    def command(self) -> list[str]:
        return [
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_ready(self) -> bool:
        try:
            return "Ready" in scrape(f"http://127.0.0.1:{self.port}/-/ready")
        except OSError:
            return False

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an instant query."""
        query = urllib.parse.urlencode({"query": expression})
        answer = json.loads(scrape(f"http://127.0.0.1:{self.port}/api/v1/query?{query}"))
        assert answer["status"] == "success", expression
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


@contextlib.contextmanager
def prometheus(target: str, token: str = "") -> Iterator[PrometheusServer]:
    """`target`: HOST:PORT that has /metrics."""
    skip_without("prometheus", "promtool")

    def make(folder: Path) -> PrometheusServer:
        server = PrometheusServer(folder)
        server.target, server.token = target, token
        return server

    with own_server(make) as server:
        yield server
