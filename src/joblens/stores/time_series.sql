-- The time-series file in Torc's form. The names are Torc's and must stay as they are.

-- name: schema
CREATE TABLE IF NOT EXISTS job_resource_samples (
    job_id INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    cpu_percent REAL,
    memory_bytes INTEGER,
    num_processes INTEGER,
    PRIMARY KEY (job_id, timestamp)
);
CREATE TABLE IF NOT EXISTS job_metadata (
    job_id INTEGER PRIMARY KEY,
    job_name TEXT NOT NULL
);
-- Ours beside them: whose rows have memory that cannot be reclaimed (Torc's is a sum of RSS), and of which job.
CREATE TABLE IF NOT EXISTS joblens_jobs (
    job_id INTEGER PRIMARY KEY,
    job_uuid TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS system_resource_samples (
    timestamp INTEGER PRIMARY KEY,
    cpu_percent REAL,
    memory_bytes INTEGER,
    total_memory_bytes INTEGER
);
CREATE TABLE IF NOT EXISTS system_resource_summary (
    sample_count INTEGER NOT NULL,
    peak_cpu_percent REAL,
    avg_cpu_percent REAL,
    peak_memory_bytes INTEGER,
    avg_memory_bytes INTEGER
);

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: put_job
INSERT INTO job_metadata (job_id, job_name) VALUES (?, ?)
ON CONFLICT DO UPDATE SET job_name = excluded.job_name

-- name: put_own_job
INSERT INTO joblens_jobs (job_id, job_uuid) VALUES (?, ?)
ON CONFLICT DO UPDATE SET job_uuid = excluded.job_uuid

-- name: put_sample
-- The key is the whole second: of what falls into one, the largest is kept.
INSERT INTO job_resource_samples (job_id, timestamp, cpu_percent, memory_bytes, num_processes)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (job_id, timestamp) DO UPDATE SET
    cpu_percent = max(coalesce(cpu_percent, excluded.cpu_percent), coalesce(excluded.cpu_percent, cpu_percent)),
    memory_bytes = max(coalesce(memory_bytes, excluded.memory_bytes), coalesce(excluded.memory_bytes, memory_bytes)),
    num_processes = max(coalesce(num_processes, excluded.num_processes), coalesce(excluded.num_processes, num_processes))

-- name: put_host_sample
INSERT INTO system_resource_samples (timestamp, cpu_percent, memory_bytes, total_memory_bytes) VALUES (?, ?, ?, ?)
ON CONFLICT (timestamp) DO UPDATE SET
    cpu_percent = max(coalesce(cpu_percent, excluded.cpu_percent), coalesce(excluded.cpu_percent, cpu_percent)),
    memory_bytes = max(coalesce(memory_bytes, excluded.memory_bytes), coalesce(excluded.memory_bytes, memory_bytes))

-- name: clear_host_summary
DELETE FROM system_resource_summary

-- name: put_host_summary
INSERT INTO system_resource_summary
SELECT count(*), max(cpu_percent), avg(cpu_percent), max(memory_bytes), CAST(avg(memory_bytes) AS INTEGER)
FROM system_resource_samples HAVING count(*) > 0

-- name: columns
SELECT name FROM pragma_table_info('job_resource_samples')

-- name: has_names
SELECT count(*) FROM sqlite_master WHERE name = 'job_metadata'

-- name: job_names
SELECT job_id, job_name FROM job_metadata

-- name: has_own_jobs
SELECT count(*) FROM sqlite_master WHERE name = 'joblens_jobs'

-- name: own_jobs
SELECT job_id, job_uuid FROM joblens_jobs

-- name: host_columns
SELECT name FROM pragma_table_info('system_resource_samples')

-- name: host_samples
SELECT timestamp, cpu_percent, memory_bytes FROM system_resource_samples ORDER BY timestamp

-- name: job_ids
SELECT DISTINCT job_id FROM job_resource_samples ORDER BY job_id

-- name: samples
SELECT timestamp, cpu_percent, memory_bytes, num_processes FROM job_resource_samples
WHERE job_id = ? ORDER BY timestamp
