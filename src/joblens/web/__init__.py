"""HTTP server: REST, event streams, sign-in. Handlers are thin; `app/server` answers.

starlette with uvicorn, not Litestar: a third of the packages and of the import time, less CPU per request."""
