-- Views for people's own queries (docs/sql.md); names and columns are the same in all databases. {mine}: which jobs may be seen.

-- name: jobs
SELECT job.id AS number, job.uuid, job.external_id AS own_id, job.name, job.tool, job.user_name, job.status,
       job.host, job.began_at_us, job.ended_at_us, job.duration_us / 1e6 AS duration_s, job.cpu_usec / 1e6 AS cpu_s,
       job.memory_bytes, job.exit_code, job.reason, run.uuid AS run_uuid, job.run_index, job.run_attempt
FROM job LEFT JOIN run ON run.id = job.run_id WHERE {mine}

-- name: attempts
-- A text with the character 0 is not taken apart.
SELECT job.id AS job_number, coalesce((told.value ->> 'number')::integer, 1) AS attempt,
       (told.value ->> 'started_at_us')::bigint AS started_at_us, job.host,
       coalesce(told.value ->> 'accounting', '') AS accounting, coalesce(told.value ->> 'kernel', '') AS kernel,
       (told.value ->> 'cpu_count')::integer AS cpu_count,
       (told.value ->> 'memory_total_bytes')::bigint AS memory_total_bytes,
       coalesce(told.value ->> 'provenance', '') AS provenance
FROM job JOIN LATERAL (
    SELECT convert_from(detail.attempt, 'UTF8')::json AS value FROM detail
    WHERE detail.job_id = job.id AND detail.attempt IS NOT NULL
      AND strpos(convert_from(detail.attempt, 'UTF8'), '\u0000') = 0
) AS told ON true WHERE {mine}

-- name: runs
SELECT run.uuid, workflow.id AS workflow_number, run.number,
       (SELECT min(at_us) FROM run_event WHERE run_event.run_id = run.id AND kind = 'started') AS started_at_us,
       (SELECT max(at_us) FROM run_event WHERE run_event.run_id = run.id AND kind = 'ended') AS ended_at_us
FROM run JOIN workflow ON workflow.uuid = run.workflow_uuid WHERE run.number IS NOT NULL AND {mine_of_workflow}

-- name: workflows
SELECT workflow.id AS number, workflow.uuid, workflow.name, workflow.user_name, workflow.source
FROM workflow WHERE {mine_of_workflow}

-- name: samples
-- Of a running job some pieces may overlap, and are counted twice until they are merged.
SELECT job.id AS job_number,
       (SELECT coalesce(sum(piece.count), 0)::bigint FROM sample_piece AS piece
        WHERE piece.job_id = job.id AND piece.fence = job.fence) AS samples,
       job.sample_bytes AS bytes
FROM job WHERE {mine}

-- name: findings
SELECT finding.job_id AS job_number, finding.code FROM finding JOIN job ON job.id = finding.job_id WHERE {mine}

-- name: tags
SELECT tag.job_id AS job_number, tag.tag FROM tag JOIN job ON job.id = tag.job_id WHERE {mine}

-- name: events
SELECT run_event.id AS number, run.uuid AS run_uuid, run_event.at_us, run_event.kind, convert_from(run_event.fact, 'UTF8') AS fact
FROM run_event JOIN run ON run.id = run_event.run_id JOIN workflow ON workflow.uuid = run.workflow_uuid
WHERE {mine_of_workflow}

-- name: annotations
SELECT annotation.job_id AS job_number, annotation.at_us, annotation.author, annotation.text
FROM annotation JOIN job ON job.id = annotation.job_id WHERE {mine}

-- name: deleted_jobs
SELECT number, uuid, external_id AS own_id, name, user_name, status, deleted_at_us, deleted_by
FROM tombstone WHERE {mine_of_tombstone}
