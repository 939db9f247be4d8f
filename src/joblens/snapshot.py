"""`python -m joblens.snapshot JOB_DIR [--human-readable]`: the same as `joblens snapshot`."""

import sys

from joblens.app.recipes.snapshots import ProcessingSnapshotAnalyzer, create_snapshot

__all__ = ["ProcessingSnapshotAnalyzer", "create_snapshot"]

if __name__ == "__main__":
    from joblens.__main__ import main

    sys.exit(main(["snapshot", *sys.argv[1:]]))
