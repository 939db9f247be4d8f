-- Sums over all ended jobs, kept up to date with every outcome, so that no question reads them all.
-- Filled from the jobs that are there already by joblens.stores.sqlite.statistics.

CREATE TABLE rollup (
    tool TEXT NOT NULL,
    status TEXT NOT NULL,
    metric TEXT NOT NULL,              -- duration (µs), cpu (µs), memory (bytes)
    count INTEGER NOT NULL,            -- jobs where it is known; duration always is
    total INTEGER NOT NULL,
    largest INTEGER NOT NULL,
    PRIMARY KEY (tool, status, metric)
) STRICT, WITHOUT ROWID;

CREATE TABLE sketch (
    tool TEXT NOT NULL,
    status TEXT NOT NULL,
    metric TEXT NOT NULL,
    bucket INTEGER NOT NULL,           -- logarithmic, see docs/format.md
    count INTEGER NOT NULL,
    PRIMARY KEY (tool, status, metric, bucket)
) STRICT, WITHOUT ROWID;
