-- Retention and checks. One query begins at "-- name:" and ends before the next.

-- name: jobs_with_samples
SELECT id, uuid, sample_bytes FROM job
WHERE sample_bytes > 0 AND ended_at_us IS NOT NULL ORDER BY ended_at_us, id

-- name: jobs_with_samples_before
SELECT id, uuid, sample_bytes FROM job
WHERE sample_bytes > 0 AND ended_at_us < %s ORDER BY ended_at_us, id

-- name: sample_bytes
SELECT coalesce(sum(sample_bytes), 0)::bigint FROM job WHERE sample_bytes > 0

-- name: count_samples
SELECT coalesce(sum(count), 0)::bigint FROM sample_piece WHERE job_id = ANY(%s::bigint[])

-- name: lock_jobs
-- In the order in which writers lock them.
SELECT id FROM job WHERE id = ANY(%s::bigint[]) ORDER BY id FOR UPDATE

-- name: delete_samples
DELETE FROM sample_piece WHERE job_id = ANY(%s::bigint[])

-- name: delete_details
DELETE FROM job_details WHERE job_id = ANY(%s::bigint[])

-- name: clear_sample_bytes
UPDATE job SET sample_bytes = 0 WHERE id = ANY(%s::bigint[])

-- name: totals
SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM sample_piece),
       (SELECT count(*) FROM workflow), (SELECT count(*) FROM run WHERE number IS NOT NULL)

-- name: total_bytes
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_namespace.nspname = 'joblens' AND pg_class.relkind = 'r'

-- name: newest_pieces
SELECT job_id, first_index, count, data FROM sample_piece ORDER BY job_id DESC, first_index DESC LIMIT %s

-- name: newest_details
SELECT job_id, data FROM job_details ORDER BY job_id DESC LIMIT %s

-- name: jobs_without_detail
SELECT count(*) FROM job WHERE NOT EXISTS (SELECT 1 FROM detail WHERE detail.job_id = job.id)

-- name: samples_without_job
SELECT count(DISTINCT job_id) FROM sample_piece
WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.id = sample_piece.job_id)

-- name: runs_only_heard_of
-- Something was written about the run, but never the run itself.
SELECT count(*) FROM run WHERE number IS NULL

-- name: runs_without_workflow
SELECT count(*) FROM run
WHERE number IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workflow WHERE workflow.uuid = run.workflow_uuid)

-- name: forget_settled_cancels
DELETE FROM cancel_request USING job WHERE job.uuid = cancel_request.uuid AND job.ended_at_us IS NOT NULL

-- name: vacuum
VACUUM (ANALYZE) joblens.{table}

-- name: tables
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE nspname = 'joblens' AND relkind = 'r' ORDER BY relname
