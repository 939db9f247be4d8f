"""Numbers from /proc: processes, threads, process trees."""
