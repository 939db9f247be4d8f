"""The schedule of a run, decided purely: events and the time in, commands out.

It knows no process, no clock and no store, so its tests need none. Jobs of one kind share a bucket, and the
schedule considers buckets, not jobs. Backfill reserves capacity for the first job that has to wait; if
durations are unknown, it counts how many jobs may pass, so that no job waits indefinitely. Tiny jobs are
queued behind running ones: 30 ms of work per slot.
"""
