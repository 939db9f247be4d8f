-- What a worker looks at beside its own tickets, found without reading those of all workers.
ALTER TABLE worker ADD COLUMN host TEXT NOT NULL DEFAULT '';

CREATE INDEX worker_on_host ON worker (host);
CREATE INDEX ticket_lease ON ticket (lease_until_us) WHERE worker IS NOT NULL;
