-- Tickets of jobs that wait for a worker or are held by one, and the workers.

ALTER TABLE job ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;

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

CREATE TABLE worker (
    name TEXT PRIMARY KEY,
    seen_at_us INTEGER NOT NULL,
    data BLOB NOT NULL                 -- as JSON
) STRICT, WITHOUT ROWID;
