"""Endpoints of queues, machines, benchmarks and settings."""

from joblens.analysis.comparing.bench_history import BenchHistory
from joblens.app.server import benchmarks, nodes, queue, settings
from joblens.web.endpoints import Call, Endpoint


def _nodes(call: Call) -> nodes.Nodes:
    server = call.server
    return nodes.list_nodes(
        call.store, call.principal, server.settings, server.live, server.hosts, call.query
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/queue",
        name="listQueues",
        summary="Queues: waiting and held jobs, workers, free slots, and why jobs do not run.",
        answer=lambda call: queue.get_queues(call.store, call.principal, call.server.settings),
        returns=queue.Queues,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/queue/waiting",
        name="listWaiting",
        summary="Jobs that wait for a worker, in the order in which they start, with position and reason.",
        answer=lambda call: queue.list_waiting(call.store, call.principal, call.server.settings, call.query),
        returns=queue.WaitingJobs,
        query=queue.TicketPage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/queue/leases",
        name="listLeases",
        summary="Jobs that workers hold, and how long each lease lasts.",
        answer=lambda call: queue.list_leases(call.store, call.principal, call.query),
        returns=queue.Leases,
        query=queue.TicketPage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/nodes",
        name="listNodes",
        is_slow=True,
        summary="Machines with capacity, use, jobs and workers.",
        answer=_nodes,
        returns=nodes.Nodes,
        query=nodes.NodePage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/nodes/measurements",
        name="getMeasurements",
        summary="Where each number of the newest ended job of `host` was read, or why it was not.",
        answer=lambda call: nodes.get_measurements(call.store, call.principal, call.query.host),
        returns=nodes.NodeMeasurements,
        query=nodes.NodeName,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/benchmarks",
        name="listBenchmarks",
        is_slow=True,
        summary="Benchmarks with their newest result, its noise and its change.",
        answer=lambda call: benchmarks.list_benchmarks(call.principal, call.server.settings, call.query),
        returns=benchmarks.Benchmarks,
        query=benchmarks.BenchPage,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/benchmarks/results",
        name="getBenchmark",
        is_slow=True,
        summary="Results of the benchmark `name`, oldest first, each compared with the one before it.",
        answer=lambda call: benchmarks.get_benchmark(call.principal, call.server.settings, call.query.name),
        returns=BenchHistory,
        query=benchmarks.BenchName,
        section="server",
    ),
    Endpoint(
        method="GET",
        path="/settings",
        name="getSettings",
        summary="Settings in force with their origin; secrets are redacted.",
        answer=lambda call: settings.get_settings(call.principal, call.server.settings, call.server.config),
        returns=settings.ShownSettings,
        section="server",
    ),
)
