"""The schedule of a run, decided purely: events and the time in, commands out.

It knows no process, no clock and no store, so its tests need none. Jobs of one kind share one bucket, and
the schedule considers kinds, not jobs. Backfill reserves capacity for the first job that has to wait; where
durations are unknown it counts how many may pass, so that no job waits indefinitely. Tiny jobs are sent
behind the one that runs: 30 ms of work for each slot."""
