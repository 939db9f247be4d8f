-- Tokens, audit, repeated requests, notes, tags and deleted jobs. Names are the same in all databases.

-- name: add_token
INSERT OR IGNORE INTO api_token (id, name, hash, user, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: tokens
SELECT id, name, hash, user, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us FROM api_token
ORDER BY created_at_us DESC, id DESC

-- name: token_of_hash
SELECT id, name, hash, user, role, scope, created_at_us, expires_at_us, used_at_us, revoked_at_us FROM api_token
WHERE hash = ?

-- name: token_used
UPDATE api_token SET used_at_us = ?1 WHERE id = ?2 AND (used_at_us IS NULL OR used_at_us < ?1)

-- name: revoke_token
UPDATE api_token SET revoked_at_us = ? WHERE id = ? AND revoked_at_us IS NULL RETURNING id

-- name: expire_token
UPDATE api_token SET expires_at_us = ? WHERE id = ? AND revoked_at_us IS NULL RETURNING id

-- name: lock_audit
-- The write lock of the file is enough.
SELECT 1

-- name: insert_audit_entry
INSERT OR IGNORE INTO audit_entry (uuid, at_us, who, action, subject, details) VALUES (?, ?, ?, ?, ?, ?)

-- name: audit_entries
SELECT id, uuid, at_us, who, action, subject, details FROM audit_entry
WHERE (?1 IS NULL OR id < ?1) AND (?2 IS NULL OR who = ?2) AND (?3 IS NULL OR action = ?3)
  AND (?4 IS NULL OR subject = ?4) AND (?5 IS NULL OR at_us >= ?5)
ORDER BY id DESC LIMIT ?6

-- name: forget_requests
DELETE FROM idempotency_key WHERE expires_at_us <= ?

-- name: add_request
INSERT OR IGNORE INTO idempotency_key (user, key, request_digest, job_uuid, at_us, expires_at_us) VALUES (?, ?, ?, ?, ?, ?)

-- name: find_request
SELECT user, key, request_digest, job_uuid, at_us, expires_at_us FROM idempotency_key
WHERE user = ? AND key = ? AND expires_at_us > ?

-- name: insert_annotation
INSERT OR IGNORE INTO annotation (uuid, job_id, at_us, author, text)
SELECT ?1, job.id, ?3, ?4, ?5 FROM job WHERE job.uuid = ?2

-- name: annotations
SELECT annotation.uuid, job.uuid, annotation.at_us, annotation.author, annotation.text
FROM job JOIN annotation ON annotation.job_id = job.id WHERE job.uuid = ? ORDER BY annotation.at_us, annotation.id

-- name: lock_jobs_to_tag
-- The write lock of the file is enough.
SELECT 1 WHERE json_array_length(?) < 0

-- name: jobs_to_tag
SELECT job.id, job.uuid, detail.job FROM job JOIN detail ON detail.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(?)) ORDER BY job.id

-- name: set_job_detail
UPDATE detail SET job = ? WHERE job_id = ?

-- name: insert_tag
INSERT OR IGNORE INTO tag (tag, job_id, began_at_us) SELECT ?, id, began_at_us FROM job WHERE id = ?

-- name: delete_tag
DELETE FROM tag WHERE tag = ? AND job_id = ?

-- name: tombstones
SELECT uuid, number, external_id, name, user, status, deleted_at_us, deleted_by FROM tombstone
WHERE uuid IN (SELECT value FROM json_each(?1)) OR external_id IN (SELECT value FROM json_each(?1))
   OR number IN (SELECT value FROM json_each(?2))
ORDER BY deleted_at_us DESC, number DESC

-- name: lock_jobs_to_delete
-- The write lock of the file is enough.
SELECT 1 WHERE json_array_length(?) < 0

-- name: jobs_to_delete
SELECT job.id, job.uuid, job.external_id, job.name, job.tool, job.user, job.status, job.began_at_us, job.duration_us,
       job.cpu_usec, job.memory_bytes, job.run_id, job.run_index, job.run_attempt,
       detail.job, detail.attempt, detail.outcome
FROM job JOIN detail ON detail.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(?)) AND job.ended_at_us IS NOT NULL ORDER BY job.id

-- name: insert_tombstone
INSERT OR IGNORE INTO tombstone (number, uuid, external_id, name, user, status, deleted_at_us, deleted_by,
                                 run_id, run_index, run_attempt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_one_audit_entry
INSERT OR IGNORE INTO audit_entry (uuid, at_us, who, action, subject, details) VALUES (?, ?, ?, ?, ?, ?)

-- name: delete_finding
DELETE FROM finding WHERE code = ? AND began_at_us = ? AND job_id = ?

-- name: delete_samples
DELETE FROM sample_block WHERE first_key IN (
    SELECT block.first_key FROM json_each(?) AS wanted
    JOIN sample_block AS block ON block.first_key BETWEEN wanted.value << 32 AND (wanted.value << 32 | 4294967295))

-- name: delete_unpacked_samples
DELETE FROM sample_tail WHERE sample_key IN (
    SELECT tail.sample_key FROM json_each(?) AS wanted
    JOIN sample_tail AS tail ON tail.sample_key BETWEEN wanted.value << 32 AND (wanted.value << 32 | 4294967295))

-- name: delete_details
DELETE FROM job_details WHERE job_id IN (SELECT value FROM json_each(?))

-- name: delete_annotations
DELETE FROM annotation WHERE job_id IN (SELECT value FROM json_each(?))

-- name: delete_documents
DELETE FROM detail WHERE job_id IN (SELECT value FROM json_each(?))

-- name: delete_jobs
DELETE FROM job WHERE id IN (SELECT value FROM json_each(?))

-- name: forget_cancels
DELETE FROM cancel_request WHERE uuid IN (SELECT value FROM json_each(?))

-- name: referenced_digests
SELECT DISTINCT CAST(detail.attempt AS TEXT) ->> '$.provenance' AS digest FROM detail
WHERE detail.attempt IS NOT NULL AND json_valid(CAST(detail.attempt AS TEXT))
  AND digest IN (SELECT value FROM json_each(?))

-- name: drop_provenance
-- Not while jobs run: one of them may be about to name it.
DELETE FROM provenance WHERE digest IN (SELECT value FROM json_each(?))
AND NOT EXISTS (SELECT 1 FROM job WHERE status = 'running')

-- name: delete_workflow_events
DELETE FROM run_event WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = ?)

-- name: unlink_tombstones
UPDATE tombstone SET run_id = NULL, run_index = NULL, run_attempt = NULL
WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = ?)

-- name: jobs_of_workflow
SELECT count(*) FROM job WHERE run_id IN (SELECT run.id FROM run WHERE run.workflow_uuid = ?)

-- name: delete_runs
DELETE FROM run WHERE workflow_uuid = ?

-- name: delete_workflow
DELETE FROM workflow WHERE uuid = ?
