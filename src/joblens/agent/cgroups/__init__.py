"""Control groups of jobs: where they go, how they are made, limited, joined and removed; systemd scopes."""
