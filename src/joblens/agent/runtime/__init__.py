"""Event loop, recorder and sampler threads, locks, and the identity of a job's owner.

One sampler thread reads all running jobs on drift-free schedules. Readings that are nearly due are taken
together, because waking up costs as much as a reading. One recorder thread writes to the store and queries
it. The loop, which handles time-outs, limits and signals, never waits for the store. While jobs run, only the
recorder, the view of a run, a worker's store thread and the supervisor's recovery use a store."""
