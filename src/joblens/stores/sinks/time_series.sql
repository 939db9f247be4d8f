-- The time-series file in Torc's form. The names are Torc's and must stay as they are.

-- name: schema
-- Torc's readers take whole seconds and no NULL. What is below a second has a column of its own, which they
-- do not ask for; the key gives rows of one second to them in their order.
CREATE TABLE IF NOT EXISTS job_resource_samples (
    job_id INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    cpu_percent REAL NOT NULL,
    memory_bytes INTEGER NOT NULL,
    num_processes INTEGER NOT NULL,
    microsecond INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, timestamp, microsecond)
);
CREATE TABLE IF NOT EXISTS job_metadata (
    job_id INTEGER PRIMARY KEY,
    job_name TEXT NOT NULL
);
-- Ours beside them: the jobs whose rows have memory that cannot be reclaimed (Torc's is a sum of RSS), and
-- what lies before their first row and after their last.
CREATE TABLE IF NOT EXISTS joblens_jobs (
    job_id INTEGER PRIMARY KEY,
    job_uuid TEXT NOT NULL,
    started_at_us INTEGER,
    ended_at_us INTEGER,
    cpu_usec INTEGER
);
CREATE TABLE IF NOT EXISTS system_resource_samples (
    timestamp INTEGER PRIMARY KEY,
    cpu_percent REAL NOT NULL,
    memory_bytes INTEGER NOT NULL,
    total_memory_bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS system_resource_summary (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sample_count INTEGER NOT NULL,
    peak_cpu_percent REAL NOT NULL,
    avg_cpu_percent REAL NOT NULL,
    peak_memory_bytes INTEGER NOT NULL,
    avg_memory_bytes INTEGER NOT NULL
);

-- name: set_old_samples_aside
ALTER TABLE job_resource_samples RENAME TO old_job_resource_samples

-- name: take_old_samples_over
INSERT OR IGNORE INTO job_resource_samples
    (job_id, timestamp, cpu_percent, memory_bytes, num_processes, microsecond)
SELECT job_id, CAST(timestamp AS INTEGER), cpu_percent, memory_bytes, num_processes,
    min(999999, CAST(round((timestamp - CAST(timestamp AS INTEGER)) * 1e6) AS INTEGER))
FROM old_job_resource_samples
WHERE cpu_percent IS NOT NULL AND memory_bytes IS NOT NULL AND num_processes IS NOT NULL;
DROP TABLE old_job_resource_samples

-- name: add_job_columns
ALTER TABLE joblens_jobs ADD COLUMN started_at_us INTEGER;
ALTER TABLE joblens_jobs ADD COLUMN ended_at_us INTEGER;
ALTER TABLE joblens_jobs ADD COLUMN cpu_usec INTEGER

-- name: replace_host_summary
DELETE FROM system_resource_samples WHERE cpu_percent IS NULL OR memory_bytes IS NULL OR total_memory_bytes IS NULL;
DROP TABLE system_resource_summary

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: uuids_of_jobs
SELECT coalesce(joblens_jobs.job_uuid, '') FROM job_metadata LEFT JOIN joblens_jobs USING (job_id)

-- name: put_job
INSERT INTO job_metadata (job_id, job_name) VALUES (?, ?)
ON CONFLICT DO UPDATE SET job_name = excluded.job_name

-- name: clear_own_samples
DELETE FROM job_resource_samples WHERE job_id = ?1 AND job_id IN (SELECT job_id FROM joblens_jobs)

-- name: put_own_job
INSERT INTO joblens_jobs (job_id, job_uuid, started_at_us, ended_at_us, cpu_usec) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET job_uuid = excluded.job_uuid, started_at_us = excluded.started_at_us,
    ended_at_us = excluded.ended_at_us, cpu_usec = excluded.cpu_usec

-- name: put_sample
INSERT OR REPLACE INTO job_resource_samples
    (job_id, timestamp, microsecond, cpu_percent, memory_bytes, num_processes)
VALUES (?, ?, ?, ?, ?, ?)

-- name: put_host_sample
INSERT INTO system_resource_samples (timestamp, cpu_percent, memory_bytes, total_memory_bytes)
SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM system_resource_samples WHERE timestamp = ?1)

-- name: raise_host_sample
-- Several jobs see the machine in the same second: the largest stays.
UPDATE system_resource_samples
SET cpu_percent = max(cpu_percent, ?2), memory_bytes = max(memory_bytes, ?3), total_memory_bytes = ?4
WHERE timestamp = ?1

-- name: clear_host_summary
DELETE FROM system_resource_summary

-- name: put_host_summary
INSERT INTO system_resource_summary
    (id, sample_count, peak_cpu_percent, avg_cpu_percent, peak_memory_bytes, avg_memory_bytes)
SELECT 1, count(*), max(cpu_percent), avg(cpu_percent), max(memory_bytes), CAST(avg(memory_bytes) AS INTEGER)
FROM system_resource_samples HAVING count(*) > 0

-- name: columns
SELECT name FROM pragma_table_info(?)

-- name: job_names
SELECT job_id, job_name FROM job_metadata

-- name: own_jobs
SELECT job_id, job_uuid, started_at_us, ended_at_us, cpu_usec FROM joblens_jobs

-- name: older_own_jobs
SELECT job_id, job_uuid, NULL, NULL, NULL FROM joblens_jobs

-- name: host_samples
SELECT timestamp, 0, cpu_percent, memory_bytes, NULL FROM system_resource_samples ORDER BY timestamp

-- name: job_ids
SELECT DISTINCT job_id FROM job_resource_samples ORDER BY job_id

-- name: samples
SELECT timestamp, microsecond, cpu_percent, memory_bytes, num_processes FROM job_resource_samples
WHERE job_id = ? ORDER BY timestamp, microsecond

-- name: samples_by_the_second
SELECT timestamp, 0, cpu_percent, memory_bytes, num_processes FROM job_resource_samples
WHERE job_id = ? ORDER BY timestamp

-- name: ids_of_uuids
SELECT job_id FROM joblens_jobs WHERE job_uuid IN (SELECT value FROM json_each(?))

-- name: remove_samples
DELETE FROM job_resource_samples WHERE job_id = ?

-- name: remove_job
DELETE FROM job_metadata WHERE job_id = ?

-- name: remove_own_job
DELETE FROM joblens_jobs WHERE job_id = ?

-- name: count_jobs
SELECT count(*) FROM job_metadata
