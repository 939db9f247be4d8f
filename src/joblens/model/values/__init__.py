"""Units, ids and other small values.

Processes exchange values in four forms: on one machine, JSON lines (`messages`); with launchers, which import
only built-in modules, marshalled datagrams; between nodes of a job, framed bytes after a proof of the token
(`runners/nodes/remote_processes.py`), or lines of text where srun carries them (`agent/nodes/protocol.py`);
through Ray, MessagePack, because output of jobs is among them (`runners/ray/messages.py`)."""
