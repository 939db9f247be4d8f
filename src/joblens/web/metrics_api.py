"""`GET /metrics`: metrics of jobs for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from joblens.app.metrics.scraper import MetricOptions, Scraper, compat_names
from joblens.model.access import Role
from joblens.model.settings import Settings
from joblens.ports.store import QueueStore
from joblens.views.prometheus.exposition import OPENMETRICS_TYPE, TEXT_TYPE
from joblens.web.endpoints import ServerContext, allowed, failed
from joblens.web.store_threads import StoreThreads


class MetricsPage:
    """Counters continue from scrape to scrape, so one scraper lives as long as the server, on a thread of
    its own."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._options = metric_options(context.settings)
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


def metric_options(settings: Settings) -> MetricOptions:
    """Raises InputError."""
    compat = compat_names(settings.server.metrics_compat, "server.metrics_compat")
    return MetricOptions(job_ids=settings.server.metrics_job_ids, compat=compat)
