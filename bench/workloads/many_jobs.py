"""Looks after N jobs that sleep, in one process, each with limits and groups of its own: N SECONDS."""

import sys

import joblens

count, seconds = int(sys.argv[1]), float(sys.argv[2])
for _ in joblens.map_commands([["sleep", str(seconds)]] * count, jobs=count, timeout=10 * seconds + 600):
    pass
