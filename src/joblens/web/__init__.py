"""HTTP server: REST, event streams, sign-in. Handlers are thin; `app/server` answers."""
