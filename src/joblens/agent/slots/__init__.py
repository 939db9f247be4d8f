"""Slots: resident launchers inside control groups of their own, for jobs without limits.

A job starts inside the groups, so none has to be moved, which would wait for the kernel. The launcher reads
the counters after each job itself and gets its next jobs ahead of time, so it never waits for its owner. A
byte in a pipe is the permit to begin a job; launcher or owner, whichever reads it, has the job. While an
answer of the launcher is unread, nothing is sampled or signalled in its slot: the next job may be running.

Starts and ends reach the store in batches, so owner and launcher keep a ledger. The owner writes each job
into a cell of a file before it sends it; the launcher notes there that it begins the job and how it ended;
the owner frees the cell when the store has the end. When the owner is killed, its launchers wait for running
jobs, kill their leftovers, note the counters and begin no other job. The next joblens process records from
the ledger the jobs that are missing in the store.

Launcher and owner read the memory peak through one open file: cgroup v2 keeps a reset peak for each open file
(Linux 6.12)."""
