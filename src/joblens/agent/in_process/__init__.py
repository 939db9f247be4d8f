"""In-process measurement: `JobMonitor`, `@measured`, `ResourceProfiler`.

Nothing is started and nothing is moved: numbers are differences of rusage and `/proc` between start and stop,
with the same instruments as for jobs. A job's window counts the work of its thread, a profiler's the whole
process. Systems other than Linux use psutil."""
