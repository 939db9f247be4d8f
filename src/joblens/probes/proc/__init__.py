"""Numbers from /proc: processes, threads, process trees.

psutil is not used on Linux: a cheap sampler needs open descriptors and its own parsing."""
