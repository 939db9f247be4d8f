-- Numbers that are kept. One query begins at "-- name:" and ends before the next.

-- name: reserve_jobs
-- Jobs that are only heard of, under the numbers they have elsewhere; where one is taken, its job gets another.
WITH wanted AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS wanted (id, uuid, began_at_us)
), made AS (
    INSERT INTO job (id, uuid, name, tool, user_name, status, began_at_us)
    SELECT id, uuid, '', '', '', 'queued', began_at_us FROM wanted ORDER BY uuid
    ON CONFLICT DO NOTHING RETURNING id
)
INSERT INTO detail (job_id) SELECT id FROM made

-- name: reserve_workflow
INSERT INTO workflow (id, uuid, name, user_name, source, detail) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: next_job
SELECT setval(pg_get_serial_sequence('job', 'id'), greatest(max(id), 1), count(*) > 0) FROM job

-- name: next_workflow
SELECT setval(pg_get_serial_sequence('workflow', 'id'), greatest(max(id), 1), count(*) > 0) FROM workflow
