"""Application factory: endpoints, pages, streams and checks around them, for one store."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from joblens.app.metrics.scraper import MetricOptions, Scraper, compat_names
from joblens.app.wiring.drivers import Warn
from joblens.model.access import Role
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore
from joblens.views.prometheus.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from joblens.web.access_api import ENDPOINTS as ACCESS
from joblens.web.auth import Authenticator
from joblens.web.endpoints import API, Endpoint, ServerContext, allowed, encode, failed, routes_of
from joblens.web.guard import App, Guard, Limits
from joblens.web.job_api import ENDPOINTS as JOBS
from joblens.web.listeners import ServeOptions
from joblens.web.machine_api import ENDPOINTS as MACHINES
from joblens.web.openapi import openapi_document
from joblens.web.pages import Pages
from joblens.web.problems import problem_response
from joblens.web.run_api import ENDPOINTS as RUNS
from joblens.web.store_api import ENDPOINTS as STORE
from joblens.web.store_threads import StoreThreads
from joblens.web.stream_api import STREAMS, stream_routes
from joblens.web.streams import Hub

_THREADS = 4
_SLOW_THREADS = 4  # the page of a large run asks three such questions at once
_QUERY_THREADS = 2
_SMALLEST_COMPRESSED = 1000


class MetricsPage:
    """`GET /metrics` for Prometheus. Counters continue from scrape to scrape, so one scraper lives as long
    as the server, on a thread of its own."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        settings = context.settings.server
        compat = compat_names(settings.metrics_compat, "server.metrics_compat")
        self._options = MetricOptions(job_ids=settings.metrics_job_ids, compat=compat)
        self._stores = StoreThreads(context.settings, context.warn, 1)
        self._scraper: Scraper | None = None
        self._store: QueueStore | None = None

    def route(self) -> Route:
        return Route("/metrics", self._respond, methods=["GET"])

    def close(self) -> None:
        self._stores.close()

    async def _respond(self, request: Request) -> Response:
        try:
            caller = await allowed(request, self._context, Role.READER)
            caller.principal.require_all("metrics")
            is_openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
            text = await self._stores.call(lambda store: self._render(store, is_openmetrics))
        except Exception as error:  # noqa: BLE001 - as every endpoint
            return failed(error, request)
        return Response(text, headers={"content-type": OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE})

    def _render(self, store: QueueStore, is_openmetrics: bool) -> str:  # noqa: FBT001 - asked by the client
        if self._scraper is None or self._store is not store:
            self._scraper, self._store = Scraper(store, self._options), store
        return self._scraper.render(is_openmetrics=is_openmetrics)


class Application:
    """`asgi` is the application; the rest is for the process that serves it."""

    def __init__(self, context: ServerContext, hub: Hub, metrics: MetricsPage, asgi: App) -> None:
        self.context = context
        self.hub = hub
        self._metrics = metrics
        self.asgi = asgi

    async def start(self) -> None:
        """Opens the store, so that one that cannot be opened is an error now."""
        await self.context.stores.call(lambda store: store.url)
        self.hub.start()

    def sign_in_code(self) -> str:
        return self.context.auth.codes.create()

    def stop_streams(self) -> None:
        """Ends open streams with a reason; clients resume at the next server."""
        self.hub.stop()

    def close(self) -> None:
        self.context.stores.close()
        self.context.slow_stores.close()
        self.context.query_stores.close()
        self.context.live.close()
        self._metrics.close()


def create_application(
    settings: Settings, config: str | None, options: ServeOptions, hosts: frozenset[str], warn: Warn
) -> Application:
    stores = StoreThreads(settings, warn, _THREADS)
    auth = Authenticator(
        stores,
        session_s=settings.server.session,
        is_tls=options.is_tls or options.is_behind_proxy,
        is_root_path=not options.base_path,
    )
    context = ServerContext(
        settings=settings,
        config=config,
        stores=stores,
        slow_stores=StoreThreads(settings, warn, _SLOW_THREADS),
        query_stores=StoreThreads(settings, warn, _QUERY_THREADS),
        auth=auth,
        warn=warn,
        base_path=options.base_path,
    )
    hub = Hub(stores, settings.server.max_streams)
    metrics = MetricsPage(context)
    pages = Pages(context)
    routes = [*_routes(context, hub), *pages.routes(), metrics.route()]
    inner = Starlette(routes=routes, exception_handlers=_handlers(pages))
    compressed = GZipMiddleware(inner, minimum_size=_SMALLEST_COMPRESSED, compresslevel=5)
    limits = Limits(
        max_body=settings.server.max_body,
        rate=settings.server.rate,
        burst=settings.server.rate * 10,
        body_s=settings.server.body_timeout,
        write_s=settings.server.write_timeout,
    )
    guard = Guard(
        compressed,
        hosts,
        limits,
        is_tls=options.is_tls,
        base_path=options.base_path,
        is_behind_proxy=options.is_behind_proxy,
    )
    return Application(context, hub, metrics, guard)


def all_endpoints() -> tuple[Endpoint, ...]:
    return (*ACCESS, *JOBS, *RUNS, *MACHINES, *STORE)


def _routes(context: ServerContext, hub: Hub) -> list[Route]:
    endpoints = all_endpoints()
    document = encode(openapi_document(endpoints, STREAMS, context.base_path))

    async def describe(request: Request) -> Response:
        try:
            await allowed(request, context, endpoints[0].role)
        except Exception as error:  # noqa: BLE001 - as every endpoint
            return failed(error, request)
        return Response(document, media_type="application/json")

    return [
        *stream_routes(context, hub),
        *routes_of(endpoints, context),
        Route(f"{API}/openapi.json", describe),
    ]


def _handlers(pages: Pages) -> dict[Any, Callable[[Request, Exception], Response | Awaitable[Response]]]:
    def refused(request: Request, error: Exception) -> Response:
        return problem_response(error, request.url.path)

    async def no_route(request: Request, error: Exception) -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if is_page and not request.scope["path"].startswith(f"{API}/"):
            return await pages.unknown(request)
        return refused(request, error)

    return {404: no_route, HTTPException: refused, Exception: refused}
