"""Pages for browsers: sign-in, sign-out, and the document that loads the dashboard. They contain no text of
jobs: the script asks the API for it."""

import html
import re
import urllib.parse

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from joblens.app.dashboard.bundle import ICON, assets
from joblens.model.errors import AccessDenied, JoblensError, SignInRequired
from joblens.web.access_api import session_info
from joblens.web.auth import Caller
from joblens.web.endpoints import ServerContext, encode, failed
from joblens.web.problems import HttpProblem

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>joblens</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{base}/assets/{style}">
{script}{preload}</head>
<body>{content}
<noscript><p>The dashboard needs JavaScript. The API does not: {base}/api/v1/openapi.json</p></noscript>
</body></html>
"""
_FORM = """<main class="sign-in card"><h1>joblens</h1>
<form method="post" action="{base}/sign-in"><p>{message}</p>
<input type="hidden" name="next" value="{page}"><label>Token <input type="password" name="token"
autocomplete="current-password" required autofocus></label><button class="primary">Sign in</button></form>
<p class="muted">Create a token with <code>joblens token create</code>.</p></main>"""
_CONTINUE = """<meta http-equiv="refresh" content="0;url={base}/">
<main class="sign-in card"><h1>joblens</h1>
<p>Signed in. <a href="{base}/">Open the dashboard</a></p></main>"""
FIRST_CHARTS = "charts?points=800"  # as pages/job/charts.js asks for them
# Paths of the dashboard; the script shows the page, of others that there is none.
_DASHBOARD = (
    "/",
    "/jobs",
    "/jobs/{job:path}",
    "/compare",
    "/workflows",
    "/workflows/{workflow:path}",
    "/runs",
    "/runs/{run:path}",
    "/recipes/{job:path}",
    "/queue",
    "/nodes",
    "/benchmarks",
    "/benchmarks/{name:path}",
    "/settings",
    "/tokens",
    "/audit",
)


class Pages:
    def __init__(self, context: ServerContext) -> None:
        self._auth = context.auth
        self._base = context.base_path
        self._path = context.base_path or "/"
        self._assets = assets()

    def routes(self) -> list[Route]:
        return [
            *(Route(path, self.dashboard, methods=["GET"]) for path in _DASHBOARD),
            Route("/assets/{name}", self.asset, methods=["GET"]),
            Route("/sign-in", self.sign_in, methods=["GET"]),
            Route("/sign-in", self.sign_in_with_token, methods=["POST"]),
            Route("/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def unknown(self, request: Request) -> Response:
        """For a browser at an address that no route has."""
        response = await self.dashboard(request)
        if response.status_code == 200:
            response.status_code = 404
        return response

    async def dashboard(self, request: Request) -> Response:
        try:
            caller = await self._caller(request)
        except (JoblensError, HttpProblem) as error:
            return failed(error, request)
        if caller is None:
            return RedirectResponse(f"{self._base}/sign-in{_next_query(request)}", 303)
        session = session_info(caller.principal, caller.session)
        boot = encode({"base": self._base, "session": session}).decode().replace("<", "\\u003c")
        content = f'<script type="application/json" id="joblens-boot">{boot}</script>'
        return self._page(content, with_script=True, preload=self._preload(request))

    def _preload(self, request: Request) -> str:
        """The curves of a long job take as long to compute as the script takes to load: the browser asks for
        both at once."""
        job = request.path_params.get("job", "")
        if not job or "/" in job or not request.scope["path"].startswith("/jobs/"):
            return ""
        url = f"{self._base}/api/v1/jobs/{urllib.parse.quote(job, safe='')}/{FIRST_CHARTS}"
        return f'<link rel="preload" as="fetch" crossorigin href="{html.escape(url)}">\n'

    async def asset(self, request: Request) -> Response:
        """The names have digests: a browser keeps them, and a new version has other names."""
        name = request.path_params["name"]
        found = next((each for each in (self._assets.script, self._assets.style) if each.name == name), None)
        if found is None:
            return failed(HttpProblem(404, "there is no such file", "reload the page"), request)
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(found.compressed, headers=headers, media_type=found.media_type)
        return Response(found.content, headers=headers, media_type=found.media_type)

    async def sign_in(self, request: Request) -> Response:
        code = request.query_params.get("code", "")
        if code:
            if self._auth.codes.take(code):
                return self._signed_in_by_url(self._auth.owner_session())
            try:
                caller = await self._caller(request)
            except (JoblensError, HttpProblem) as error:
                return failed(error, request)
            if caller is not None:  # the URL was opened a second time
                return RedirectResponse(self._path, 303)
            return self._form("This sign-in URL was used before, or has expired.", 401)
        return self._form(
            "Sign in with a token, or with the URL that the server printed at start.",
            200,
            request.query_params.get("next", ""),
        )

    async def sign_in_with_token(self, request: Request) -> Response:
        page = ""
        try:
            _check_origin(request)
            fields = urllib.parse.parse_qs((await request.body()).decode("utf-8", "replace"))
            page = fields.get("next", [""])[0]
            cookie = await self._auth.token_session(fields.get("token", [""])[0].strip(), request.scope)
        except SignInRequired as error:
            text = str(error)
            return self._form(f"{text[:1].upper()}{text[1:]}.", 401, page)
        except (JoblensError, HttpProblem) as error:
            return failed(error, request)
        return self._signed_in(cookie, page)

    async def sign_out(self, request: Request) -> Response:
        try:
            await self._auth.caller(request.scope)
        except (JoblensError, HttpProblem) as error:
            return failed(error, request)
        self._auth.sessions.close(self._auth.cookie_of(request.headers.get("cookie", "")))
        response = RedirectResponse(f"{self._base}/sign-in", 303)
        response.headers["set-cookie"] = self._auth.set_cookie("", self._path)
        return response

    async def _caller(self, request: Request) -> Caller | None:
        """Returns None if the client must sign in. Raises the error of a failing store."""
        try:
            return await self._auth.caller(request.scope)
        except (SignInRequired, AccessDenied):
            return None

    def _signed_in_by_url(self, cookie: str) -> Response:
        """The URL may come from a page of another site, such as a terminal in the browser. A redirect would
        then not carry the SameSite cookie; the next request of a page of this server does."""
        response = self._page(_CONTINUE.format(base=self._base))
        response.headers["set-cookie"] = self._auth.set_cookie(cookie, self._path)
        return response

    def _signed_in(self, cookie: str, page: str = "") -> Response:
        response = RedirectResponse(f"{self._base}{_own_page(page)}", 303)
        response.headers["set-cookie"] = self._auth.set_cookie(cookie, self._path)
        return response

    def _form(self, message: str, status: int, page: str = "") -> Response:
        words = {"message": html.escape(message), "page": html.escape(_own_page(page))}
        return self._page(_FORM.format(base=self._base, **words), status)

    def _page(
        self, content: str, status: int = 200, *, with_script: bool = False, preload: str = ""
    ) -> Response:
        script = f'<script src="{self._base}/assets/{self._assets.script.name}" defer></script>\n'
        page = _PAGE.format(
            icon=ICON,
            base=self._base,
            style=self._assets.style.name,
            script=script if with_script else "",
            preload=preload,
            content=content,
        )
        return HTMLResponse(page, status)


def _next_query(request: Request) -> str:
    """The requested page, to return to after the sign-in."""
    query = request.scope["query_string"].decode("latin-1")
    page = request.scope["path"] + (f"?{query}" if query else "")
    return "" if page == "/" else "?" + urllib.parse.urlencode({"next": page})


def _own_page(page: str) -> str:
    """A path of this server; '/' for everything else: a link must not lead to another site."""
    is_own = re.fullmatch(r"/[A-Za-z0-9_][^\\\x00-\x20\x7f]*", page) is not None
    return page if is_own and not page.startswith("/sign-") else "/"


def _check_origin(request: Request) -> None:
    """A form of another site must not sign a browser in as another user."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none"):
        raise AccessDenied("sign in from the page of this server", hint="open its address in the browser")
