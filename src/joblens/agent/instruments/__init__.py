"""Instruments beyond the control groups: GPU, network, energy, counters, threads, memory.

Each is a row of one table and a module of its own, imported when the first job uses it. A probe that takes
microseconds is read with every sample. An expensive one is a `DetailProbe` with a budget. One that may block
is a `Driver` on its own thread, shared by all jobs of the process and never joined. An instrument that cannot
be imported, opened or read becomes a reason in the record."""
