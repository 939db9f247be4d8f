"""Jobs in containers, and containers that others started.

The main process of such a job is a client of the engine that stays outside the job's groups; the container's
groups are made below them, so totals outlive the container. An engine may take any time to answer, so the
owner never sends it requests: the client does, under time limits, and gets the container's end from the
kernel (pidfd). The client writes its facts to a note, which sessions, adoption and recovery read."""
