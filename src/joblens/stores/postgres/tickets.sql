-- Tickets of jobs that wait for a worker or are held by one, and the workers.

CREATE TABLE ticket (
    job_id bigint PRIMARY KEY REFERENCES job (id),
    queue text NOT NULL,
    user_name text NOT NULL,
    waiting_since_us bigint NOT NULL,  -- since it might be taken; it keeps its place when it comes back
    is_ready boolean NOT NULL,         -- false: the job it comes after has not ended yet
    after_uuid text COLLATE "C",
    worker text,                       -- who holds it; NULL: nobody
    lease_until_us bigint,
    deliveries integer NOT NULL,       -- how often it was taken, less how often it was given back
    lost_worker text NOT NULL,
    lost_attempt bytea,                -- as JSON
    data bytea NOT NULL                -- the ticket as JSON, with what the worker is to run
) WITH (fillfactor = 50);

CREATE INDEX ticket_waiting ON ticket (queue, waiting_since_us, job_id) WHERE worker IS NULL AND is_ready;
CREATE INDEX ticket_after ON ticket (after_uuid) WHERE after_uuid IS NOT NULL;
CREATE INDEX ticket_held ON ticket (worker) WHERE worker IS NOT NULL;

CREATE TABLE worker (
    name text PRIMARY KEY,
    seen_at_us bigint NOT NULL,
    data bytea NOT NULL                -- as JSON
) WITH (fillfactor = 50);
