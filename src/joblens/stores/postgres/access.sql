-- Tokens, audit, repeated requests, notes, tags and deleted jobs. Names are the same in all databases.

-- name: add_token
INSERT INTO api_token (id, name, hash, user_name, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: tokens
SELECT id, name, hash, user_name, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us FROM api_token
ORDER BY created_at_us DESC, id DESC

-- name: token_of_hash
SELECT id, name, hash, user_name, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us FROM api_token
WHERE hash = %s

-- name: token_used
UPDATE api_token SET used_at_us = new.at_us FROM (SELECT %s::bigint AS at_us, %s::text AS id) AS new
WHERE api_token.id = new.id AND (used_at_us IS NULL OR used_at_us < new.at_us)

-- name: revoke_token
UPDATE api_token SET revoked_at_us = %s WHERE id = %s AND revoked_at_us IS NULL RETURNING id

-- name: expire_token
UPDATE api_token SET expires_at_us = %s WHERE id = %s AND revoked_at_us IS NULL RETURNING id

-- name: lock_audit
-- Entries get numbers in the order in which they are seen: who reads on from a number misses none.
SELECT pg_advisory_xact_lock(7738151191)

-- name: insert_audit_entry
INSERT INTO audit_entry (uuid, at_us, who, action, subject, details)
SELECT uuid, at_us, who, action, subject, details
FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %b::bytea[])
     WITH ORDINALITY AS new (uuid, at_us, who, action, subject, details, place)
ORDER BY place
ON CONFLICT DO NOTHING

-- name: audit_entries
WITH wanted AS (
    SELECT %s::bigint AS before, %s::text AS who, %s::text AS action, %s::text AS subject, %s::bigint AS since_us
)
SELECT entry.id, entry.uuid, entry.at_us, entry.who, entry.action, entry.subject, entry.details
FROM audit_entry AS entry, wanted
WHERE (wanted.before IS NULL OR entry.id < wanted.before) AND (wanted.who IS NULL OR entry.who = wanted.who)
  AND (wanted.action IS NULL OR entry.action = wanted.action)
  AND (wanted.subject IS NULL OR entry.subject = wanted.subject)
  AND (wanted.since_us IS NULL OR entry.at_us >= wanted.since_us)
ORDER BY entry.id DESC LIMIT %s

-- name: forget_requests
DELETE FROM idempotency_key WHERE expires_at_us <= %s

-- name: add_request
INSERT INTO idempotency_key (user_name, key, request_digest, job_uuid, at_us, expires_at_us)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: find_request
SELECT user_name, key, request_digest, job_uuid, at_us, expires_at_us FROM idempotency_key
WHERE user_name = %s AND key = %s AND expires_at_us > %s

-- name: insert_annotation
INSERT INTO annotation (uuid, job_id, at_us, author, text)
SELECT new.uuid, job.id, new.at_us, new.author, new.text
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[]) AS new (uuid, job_uuid, at_us, author, text)
JOIN job ON job.uuid = new.job_uuid
ON CONFLICT DO NOTHING

-- name: annotations
SELECT annotation.uuid, job.uuid, annotation.at_us, annotation.author, annotation.text
FROM job JOIN annotation ON annotation.job_id = job.id WHERE job.uuid = %s ORDER BY annotation.at_us, annotation.id

-- name: lock_jobs_to_tag
-- A statement of its own: the next one sees what others committed while this one waited.
SELECT id FROM job WHERE uuid = ANY(%s::text[]) ORDER BY id FOR NO KEY UPDATE

-- name: jobs_to_tag
SELECT job.id, job.uuid, detail.job FROM job JOIN detail ON detail.job_id = job.id
WHERE job.uuid = ANY(%s::text[]) ORDER BY job.id

-- name: set_job_detail
UPDATE detail SET job = %b WHERE job_id = %s

-- name: insert_tag
INSERT INTO tag (tag, job_id, began_at_us) SELECT new.tag, job.id, job.began_at_us
FROM (SELECT %s::text AS tag, %s::bigint AS job_id) AS new JOIN job ON job.id = new.job_id
ON CONFLICT DO NOTHING

-- name: delete_tag
DELETE FROM tag WHERE tag = %s AND job_id = %s

-- name: tombstones
WITH wanted AS (SELECT %s::text[] AS words, %s::bigint[] AS numbers)
SELECT uuid, number, external_id, name, user_name, status, deleted_at_us, deleted_by FROM tombstone, wanted
WHERE uuid = ANY(wanted.words) OR external_id = ANY(wanted.words) OR number = ANY(wanted.numbers)
ORDER BY deleted_at_us DESC, number DESC

-- name: lock_jobs_to_delete
-- A statement of its own: the next one sees what others committed while this one waited.
SELECT id FROM job WHERE uuid = ANY(%s::text[]) ORDER BY id FOR UPDATE

-- name: jobs_to_delete
SELECT job.id, job.uuid, job.external_id, job.name, job.tool, job.user_name, job.status, job.began_at_us,
       job.duration_us, job.cpu_usec, job.memory_bytes, job.run_id, job.run_index, job.run_attempt,
       detail.job, detail.attempt, detail.outcome
FROM job JOIN detail ON detail.job_id = job.id
WHERE job.uuid = ANY(%s::text[]) AND job.ended_at_us IS NOT NULL ORDER BY job.id

-- name: insert_tombstone
INSERT INTO tombstone (number, uuid, external_id, name, user_name, status, deleted_at_us, deleted_by,
                       run_id, run_index, run_attempt)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

-- name: insert_one_audit_entry
INSERT INTO audit_entry (uuid, at_us, who, action, subject, details) VALUES (%s, %s, %s, %s, %s, %b) ON CONFLICT DO NOTHING

-- name: delete_finding
DELETE FROM finding WHERE code = %s AND began_at_us = %s AND job_id = %s

-- name: delete_samples
DELETE FROM sample_piece WHERE job_id = ANY(%s::bigint[])

-- name: delete_unpacked_samples
-- All samples are in one table.
SELECT 1 WHERE cardinality(%s::bigint[]) < 0

-- name: delete_details
DELETE FROM job_details WHERE job_id = ANY(%s::bigint[])

-- name: delete_annotations
DELETE FROM annotation WHERE job_id = ANY(%s::bigint[])

-- name: delete_documents
DELETE FROM detail WHERE job_id = ANY(%s::bigint[])

-- name: delete_jobs
DELETE FROM job WHERE id = ANY(%s::bigint[])

-- name: forget_cancels
DELETE FROM cancel_request WHERE uuid = ANY(%s::text[])

-- name: referenced_digests
SELECT DISTINCT wanted.digest FROM unnest(%s::text[]) AS wanted (digest)
WHERE EXISTS (SELECT 1 FROM detail
    WHERE position(convert_to('"provenance":"' || wanted.digest || '"', 'UTF8') IN detail.attempt) > 0)

-- name: drop_provenance
-- Not while jobs run: one of them may be about to name it.
DELETE FROM provenance WHERE digest = ANY(%s::text[])
AND NOT EXISTS (SELECT 1 FROM job WHERE status = 'running')

-- name: delete_workflow_events
DELETE FROM run_event WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = %s)

-- name: unlink_tombstones
UPDATE tombstone SET run_id = NULL, run_index = NULL, run_attempt = NULL
WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = %s)

-- name: jobs_of_workflow
SELECT count(*) FROM job WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = %s)

-- name: delete_runs
DELETE FROM run WHERE workflow_uuid = %s

-- name: delete_workflow
DELETE FROM workflow WHERE uuid = %s
