-- The server: lists by host, finding and time, notes, deleted jobs, tokens, audit, requests that may be repeated.
ALTER TABLE job ADD COLUMN host TEXT NOT NULL DEFAULT '';

UPDATE job SET host = coalesce((
    SELECT CAST(detail.attempt AS TEXT) ->> '$.owner.host' FROM detail
    WHERE detail.job_id = job.id AND json_valid(CAST(detail.attempt AS TEXT))), '');

ALTER TABLE tag ADD COLUMN began_at_us INTEGER NOT NULL DEFAULT 0;

UPDATE tag SET began_at_us = coalesce((SELECT job.began_at_us FROM job WHERE job.id = tag.job_id), 0);

CREATE INDEX tag_by_began ON tag (tag, began_at_us);

-- With the order of lists, so that a filter is walked newest first.
DROP INDEX job_by_name;
DROP INDEX job_by_user;
CREATE INDEX job_by_name ON job (name, began_at_us);
CREATE INDEX job_by_user ON job (user, began_at_us);
CREATE INDEX job_by_status ON job (status, began_at_us);
CREATE INDEX job_by_host ON job (host, began_at_us) WHERE host <> '';
CREATE INDEX job_of_run_by_began ON job (run_id, began_at_us) WHERE run_id IS NOT NULL;

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

INSERT OR IGNORE INTO finding (code, began_at_us, job_id)
SELECT found.value ->> '$.code', job.began_at_us, job.id
FROM job JOIN detail ON detail.job_id = job.id,
     json_each(CASE WHEN json_valid(CAST(detail.outcome AS TEXT)) THEN CAST(detail.outcome AS TEXT) END, '$.findings') AS found
WHERE job.ended_at_us IS NOT NULL AND found.value ->> '$.code' IS NOT NULL;
