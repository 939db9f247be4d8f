"""Endpoints of queues, machines, benchmarks and settings."""

import functools

from joblens.analysis.comparing.bench_history import BenchHistory
from joblens.app.server import benchmarks, nodes, queue, settings
from joblens.web.endpoints import Call, Endpoint, with_query


def _nodes(call: Call) -> nodes.Nodes:
    server = call.server
    return nodes.list_nodes(
        call.store, call.principal, server.settings, server.live, server.hosts, call.query
    )


_server = functools.partial(Endpoint, section="server")

ENDPOINTS = (
    _server(
        "GET /queue",
        "listQueues",
        "Queues: waiting and held jobs, workers, free slots, and why jobs do not run.",
        lambda call: queue.get_queues(call.store, call.principal, call.server.settings),
        queue.Queues,
    ),
    _server(
        "GET /queue/waiting",
        "listWaiting",
        "Jobs that wait for a worker, in the order in which they start, with position and reason.",
        lambda call: queue.list_waiting(call.store, call.principal, call.server.settings, call.query),
        queue.WaitingJobs,
        query=queue.TicketPage,
    ),
    _server(
        "GET /queue/leases",
        "listLeases",
        "Jobs that workers hold, and how long each lease lasts.",
        with_query(queue.list_leases),
        queue.Leases,
        query=queue.TicketPage,
    ),
    _server(
        "GET /nodes",
        "listNodes",
        "Machines with capacity, use, jobs and workers.",
        _nodes,
        nodes.Nodes,
        query=nodes.NodePage,
        is_slow=True,
    ),
    _server(
        "GET /nodes/measurements",
        "getMeasurements",
        "Where each number of the newest ended job of `host` was read, or why it was not.",
        lambda call: nodes.get_measurements(call.store, call.principal, call.query.host),
        nodes.NodeMeasurements,
        query=nodes.NodeName,
    ),
    _server(
        "GET /benchmarks",
        "listBenchmarks",
        "Benchmarks with their newest result, its noise and its change.",
        lambda call: benchmarks.list_benchmarks(call.principal, call.server.settings, call.query),
        benchmarks.Benchmarks,
        query=benchmarks.BenchPage,
        is_slow=True,
    ),
    _server(
        "GET /benchmarks/results",
        "getBenchmark",
        "Results of the benchmark `name`, oldest first, each compared with the one before it.",
        lambda call: benchmarks.get_benchmark(call.principal, call.server.settings, call.query.name),
        BenchHistory,
        query=benchmarks.BenchName,
        is_slow=True,
    ),
    _server(
        "GET /settings",
        "getSettings",
        "Settings in force with their origin; secrets are redacted.",
        lambda call: settings.get_settings(call.principal, call.server.settings, call.server.config),
        settings.ShownSettings,
    ),
)
