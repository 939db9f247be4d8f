-- Jobs, what is known of each, their tags and their samples.

-- What is filtered and sorted on. Unknown is NULL.
CREATE TABLE job (
    id INTEGER PRIMARY KEY,            -- the job's number
    uuid TEXT NOT NULL UNIQUE,
    external_id TEXT,
    name TEXT NOT NULL,
    tool TEXT NOT NULL,
    user TEXT NOT NULL,
    status TEXT NOT NULL,
    began_at_us INTEGER NOT NULL,      -- its start; while it has none, when it was made
    ended_at_us INTEGER,
    duration_us INTEGER,
    cpu_usec INTEGER,
    memory_bytes INTEGER,              -- peak of what cannot be reclaimed
    sample_bytes INTEGER NOT NULL,     -- of its blocks and its details
    exit_code INTEGER,                 -- this and the next: of jobs that ended under version 3 or later
    reason TEXT,
    run_id INTEGER REFERENCES run (id),  -- this and the next two: NULL outside workflows
    run_index INTEGER,                 -- which job of the run; -1: a command of an action or a recovery
    run_attempt INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,  -- how often a worker took it; 0: it has no ticket, or nobody did yet
    host TEXT NOT NULL DEFAULT ''      -- where its last attempt started; '': it has not begun
) STRICT;

CREATE INDEX job_by_external_id ON job (external_id, id) WHERE external_id IS NOT NULL;
CREATE INDEX job_by_began ON job (began_at_us);
CREATE INDEX job_by_status_and_tool ON job (status, tool, began_at_us);
CREATE INDEX job_by_status ON job (status, began_at_us);
CREATE INDEX job_by_name ON job (name, began_at_us);
CREATE INDEX job_by_user ON job (user, began_at_us);
CREATE INDEX job_by_host ON job (host, began_at_us) WHERE host <> '';
CREATE INDEX job_by_ended ON job (ended_at_us);
CREATE INDEX job_by_duration ON job (duration_us);
CREATE INDEX job_by_cpu ON job (cpu_usec);
CREATE INDEX job_by_memory ON job (memory_bytes);
CREATE INDEX job_with_samples ON job (ended_at_us, sample_bytes) WHERE sample_bytes > 0;
CREATE INDEX job_of_run ON job (run_id, run_index, run_attempt) WHERE run_id IS NOT NULL;
CREATE INDEX job_of_run_by_began ON job (run_id, began_at_us) WHERE run_id IS NOT NULL;

-- Everything that is known, as JSON.
CREATE TABLE detail (
    job_id INTEGER PRIMARY KEY REFERENCES job (id),
    job BLOB,                          -- NULL: only heard of so far, by a write about it
    attempt BLOB,
    outcome BLOB
) STRICT;

CREATE TABLE tag (
    tag TEXT NOT NULL,
    job_id INTEGER NOT NULL REFERENCES job (id),
    began_at_us INTEGER NOT NULL DEFAULT 0,  -- as in the job
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_by_began ON tag (tag, began_at_us);

-- Jobs that someone wants to end. A row goes when its job ends.
CREATE TABLE cancel_request (
    uuid TEXT PRIMARY KEY,
    asked_at_us INTEGER NOT NULL,
    asked_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A sample has the key job * 2^32 + index, so that those of one job lie together and in order.

CREATE TABLE sample_block (
    first_key INTEGER PRIMARY KEY,     -- of its first sample; the others follow without a gap
    count INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Samples that are not yet in a block, each as MessagePack.
CREATE TABLE sample_tail (
    sample_key INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

-- What is known of a job beside its samples: threads, endpoints, memory in depth, GPUs, container.
CREATE TABLE job_details (
    job_id INTEGER PRIMARY KEY REFERENCES job (id),
    data BLOB NOT NULL                 -- JSON as a Zstandard frame; counted in job.sample_bytes
) STRICT;

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
-- Workflows, their runs, what happened to each run.

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

-- Tickets of jobs that wait for a worker or are held by one, and the workers.

CREATE TABLE ticket (
    job_id INTEGER PRIMARY KEY REFERENCES job (id),
    queue TEXT NOT NULL,
    user TEXT NOT NULL,
    waiting_since_us INTEGER NOT NULL, -- since it might be taken; it keeps its place when it comes back
    is_ready INTEGER NOT NULL,         -- 0: the job it comes after has not ended yet
    after_uuid TEXT,
    worker TEXT,                       -- who holds it; NULL: nobody
    lease_until_us INTEGER,
    deliveries INTEGER NOT NULL,       -- how often it was taken, less how often it was given back
    lost_worker TEXT NOT NULL,
    lost_attempt BLOB,                 -- as JSON
    data BLOB NOT NULL                 -- the ticket as JSON, with what the worker is to run
) STRICT;

CREATE INDEX ticket_waiting ON ticket (queue, waiting_since_us, job_id) WHERE worker IS NULL AND is_ready = 1;
CREATE INDEX ticket_after ON ticket (after_uuid) WHERE after_uuid IS NOT NULL;
CREATE INDEX ticket_held ON ticket (worker) WHERE worker IS NOT NULL;
CREATE INDEX ticket_lease ON ticket (lease_until_us) WHERE worker IS NOT NULL;

CREATE TABLE worker (
    name TEXT PRIMARY KEY,
    seen_at_us INTEGER NOT NULL,
    data BLOB NOT NULL,                -- as JSON
    host TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_on_host ON worker (host);

-- What jobs ran in (code, versions, machine), once for all that ran in the same. An attempt names the digest.
CREATE TABLE provenance (
    digest TEXT PRIMARY KEY,
    data BLOB NOT NULL                 -- JSON as a Zstandard frame
) STRICT, WITHOUT ROWID;

-- Findings of ended jobs, in the order in which lists show them.
CREATE TABLE finding (
    code TEXT NOT NULL,
    began_at_us INTEGER NOT NULL,      -- as in the job, which has ended
    job_id INTEGER NOT NULL REFERENCES job (id),
    PRIMARY KEY (code, began_at_us, job_id)
) STRICT, WITHOUT ROWID;

-- Notes that people attach to jobs.
CREATE TABLE annotation (
    id INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    job_id INTEGER NOT NULL REFERENCES job (id),
    at_us INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE INDEX annotation_of_job ON annotation (job_id, id);

-- Deleted jobs: numbers are never given out again, late writes are ignored, successes stay successes of their run.
CREATE TABLE tombstone (
    number INTEGER PRIMARY KEY,
    uuid TEXT NOT NULL UNIQUE,
    external_id TEXT,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    status TEXT NOT NULL,
    deleted_at_us INTEGER NOT NULL,
    deleted_by TEXT NOT NULL,
    run_id INTEGER,                    -- this and the next two: NULL outside workflows
    run_index INTEGER,
    run_attempt INTEGER
) STRICT;

CREATE INDEX tombstone_of_run ON tombstone (run_id, run_index) WHERE run_id IS NOT NULL;
CREATE INDEX tombstone_by_external_id ON tombstone (external_id, number) WHERE external_id IS NOT NULL;

-- Access to a server. Of a token only the SHA-256 is stored.
CREATE TABLE api_token (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,                -- the user of the store that requests act as
    role TEXT NOT NULL,                -- reader, operator, admin
    scope TEXT NOT NULL,               -- own, all
    created_at_us INTEGER NOT NULL,
    expires_at_us INTEGER,             -- NULL: never
    used_at_us INTEGER,                -- NULL: never
    revoked_at_us INTEGER              -- NULL: it is valid
) STRICT, WITHOUT ROWID;

-- Changes that people and programs made: who did what to what.
CREATE TABLE audit_entry (
    id INTEGER PRIMARY KEY,            -- in the order they came
    uuid TEXT NOT NULL UNIQUE,
    at_us INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    details BLOB NOT NULL              -- as JSON
) STRICT;

-- Requests that may be sent again: the second one gets the job of the first.
CREATE TABLE idempotency_key (
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    job_uuid TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    expires_at_us INTEGER NOT NULL,
    PRIMARY KEY (user, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_key_expired ON idempotency_key (expires_at_us);
