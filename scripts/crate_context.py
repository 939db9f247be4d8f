"""Puts the context of RO-Crate 1.1 into the validator's cache, as if it had been fetched.

`crate_context.py CACHE`, in the validator's environment."""

import io
import sys
from importlib.resources import files

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class FromPackage(HTTPAdapter):
    """Answers with the file that a package of RO-Crate's makers brings along."""

    def send(self, request: PreparedRequest, *_: object, **__: object) -> Response:
        text = files("rocrate").joinpath("data/ro-crate.jsonld").read_bytes()
        raw = HTTPResponse(
            body=io.BytesIO(text),
            headers={"Content-Type": "application/ld+json"},
            status=200,
            preload_content=False,
            request_url=CONTEXT,
        )
        return self.build_response(request, raw)


def main() -> None:
    session = CachedSession(cache_name=sys.argv[1], expire_after=-1)
    session.mount("https://", FromPackage())
    if f'"{CONTEXT}"' not in session.get(CONTEXT).text:
        raise SystemExit("the package has another context than that of RO-Crate 1.1")


if __name__ == "__main__":
    main()
