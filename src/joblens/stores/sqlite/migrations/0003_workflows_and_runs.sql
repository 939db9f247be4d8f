-- Workflows, their runs, what happened to each run, and which job of which run a record is an attempt of.

CREATE TABLE workflow (
    id INTEGER PRIMARY KEY,            -- the workflow's number
    uuid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    source TEXT NOT NULL,
    detail BLOB NOT NULL               -- all of it, as JSON
) STRICT;

CREATE INDEX workflow_by_name ON workflow (name, id);
CREATE INDEX workflow_by_source ON workflow (source, name, user, id);

CREATE TABLE run (
    id INTEGER PRIMARY KEY,            -- inside the store only; people say workflow and number
    uuid TEXT NOT NULL UNIQUE,
    workflow_uuid TEXT,                -- NULL, as all that follows: only heard of so far
    number INTEGER,                    -- within its workflow
    detail BLOB,                       -- as JSON, without what `spec` holds
    spec BLOB                          -- the spec's text and tables, as a Zstandard frame of JSON
) STRICT;

CREATE UNIQUE INDEX run_of_workflow ON run (workflow_uuid, number) WHERE number IS NOT NULL;

CREATE TABLE run_event (
    id INTEGER PRIMARY KEY,            -- in the order they came
    uuid TEXT NOT NULL UNIQUE,
    run_id INTEGER NOT NULL REFERENCES run (id),
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    fact BLOB NOT NULL                 -- as JSON
) STRICT;

CREATE INDEX run_event_of_run ON run_event (run_id, id);
CREATE INDEX run_event_turn ON run_event (run_id, at_us, id) WHERE kind IN ('started', 'ended');

ALTER TABLE job ADD COLUMN exit_code INTEGER;
ALTER TABLE job ADD COLUMN reason TEXT;
ALTER TABLE job ADD COLUMN run_id INTEGER REFERENCES run (id);
ALTER TABLE job ADD COLUMN run_index INTEGER;
ALTER TABLE job ADD COLUMN run_attempt INTEGER;

CREATE INDEX job_of_run ON job (run_id, run_index, run_attempt) WHERE run_id IS NOT NULL;
