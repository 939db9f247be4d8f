-- Every query of the SQLite store. One begins at "-- name:" and ends before the next.

-- name: begin_write
-- Takes the write lock at once, so that a transaction never fails half way for want of it.
BEGIN IMMEDIATE

-- name: begin_read
BEGIN

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: sync_each_commit
PRAGMA synchronous = FULL

-- name: sync_at_checkpoints
PRAGMA synchronous = NORMAL

-- name: identity
SELECT user_version, application_id FROM pragma_user_version, pragma_application_id

-- name: set_user_version
PRAGMA user_version = {version}

-- name: set_application_id
PRAGMA application_id = {application_id}

-- name: give_pages_back_in_steps
PRAGMA auto_vacuum = INCREMENTAL

-- name: set_journal_mode
PRAGMA journal_mode = {mode}

-- name: give_free_pages_back
PRAGMA incremental_vacuum

-- name: vacuum
VACUUM

-- name: empty_the_log
PRAGMA wal_checkpoint(TRUNCATE)

-- name: integrity_check
PRAGMA integrity_check(20)

-- name: known_jobs
-- What is already known of the jobs that a batch of writes is about.
SELECT job.uuid, job.id, job.status, job.tool, job.duration_us, job.cpu_usec, job.memory_bytes,
       detail.job IS NOT NULL,
       CASE WHEN detail.attempt IS NOT NULL THEN coalesce(detail.attempt ->> '$.number', 1) ELSE 0 END,
       job.fence, job.fence > 0 AND EXISTS (SELECT 1 FROM ticket WHERE ticket.job_id = job.id AND worker IS NULL)
FROM job JOIN detail ON detail.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(?))

-- name: last_number
-- The number of a deleted job is not given out again.
SELECT max(coalesce((SELECT max(id) FROM job), 0), coalesce((SELECT max(number) FROM tombstone), 0))

-- name: buried
SELECT uuid FROM tombstone WHERE uuid IN (SELECT value FROM json_each(?))

-- name: insert_job
INSERT INTO job (id, uuid, external_id, name, tool, user, status, began_at_us,
                 ended_at_us, duration_us, cpu_usec, memory_bytes, exit_code, reason,
                 run_id, run_index, run_attempt, fence, host, sample_bytes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)

-- name: insert_detail
INSERT INTO detail (job_id, job, attempt, outcome) VALUES (?, ?, ?, ?)

-- name: insert_tag
INSERT OR IGNORE INTO tag (tag, job_id, began_at_us) SELECT ?, id, began_at_us FROM job WHERE id = ?

-- name: move_tags
-- A job that was known before it began is listed by its beginning now.
UPDATE tag SET began_at_us = (SELECT began_at_us FROM job WHERE id = ?1) WHERE job_id = ?1 AND tag IN (
    SELECT described.value FROM detail, json_each(CAST(detail.job AS TEXT), '$.tags') AS described
    WHERE detail.job_id = ?1)

-- name: set_job
UPDATE job SET external_id = ?, name = ?, tool = ?, user = ?, run_id = ?, run_index = ?, run_attempt = ?
WHERE id = ?

-- name: set_job_detail
UPDATE detail SET job = ? WHERE job_id = ?

-- name: set_started
UPDATE job SET status = ?, began_at_us = ?, host = ? WHERE id = ?

-- name: set_attempt_detail
UPDATE detail SET attempt = ? WHERE job_id = ?

-- name: set_ended
UPDATE job SET status = ?, ended_at_us = ?, duration_us = ?, cpu_usec = ?, memory_bytes = ?,
               exit_code = ?, reason = ?
WHERE id = ?

-- name: drop_findings
-- Of a job that was lost and has a true outcome now.
DELETE FROM finding WHERE job_id = ?1 AND began_at_us = (SELECT began_at_us FROM job WHERE id = ?1) AND code IN (
    SELECT found.value ->> '$.code' FROM detail, json_each(CAST(detail.outcome AS TEXT), '$.findings') AS found
    WHERE detail.job_id = ?1)

-- name: insert_finding
INSERT OR IGNORE INTO finding (code, began_at_us, job_id) SELECT ?, began_at_us, id FROM job WHERE id = ?

-- name: set_outcome_detail
UPDATE detail SET outcome = ? WHERE job_id = ?

-- name: insert_tail
INSERT OR IGNORE INTO sample_tail (sample_key, data) VALUES (?, ?)

-- name: append_to_tail
-- The everyday write: one more sample of a job that runs. Nothing happens when it has ended meanwhile.
INSERT OR IGNORE INTO sample_tail (sample_key, data)
SELECT ?, ? WHERE EXISTS (SELECT 1 FROM job WHERE id = ? AND status = 'running' AND fence = ?)

-- name: is_running
SELECT EXISTS (SELECT 1 FROM job WHERE id = ? AND status = 'running' AND fence = ?)

-- name: tail_of
SELECT sample_key, data FROM sample_tail WHERE sample_key BETWEEN ? AND ? ORDER BY sample_key

-- name: delete_tail
DELETE FROM sample_tail WHERE sample_key BETWEEN ? AND ?

-- name: last_block
SELECT first_key, count FROM sample_block WHERE first_key BETWEEN ? AND ? ORDER BY first_key DESC LIMIT 1

-- name: blocks_of
SELECT first_key, count FROM sample_block WHERE first_key BETWEEN ? AND ? ORDER BY first_key

-- name: small_blocks_of
SELECT first_key, count, data FROM sample_block WHERE first_key BETWEEN ? AND ? AND count < ? ORDER BY first_key

-- name: delete_block
DELETE FROM sample_block WHERE first_key = ?

-- name: insert_block
INSERT INTO sample_block (first_key, count, data) VALUES (?, ?, ?)

-- name: add_sample_bytes
UPDATE job SET sample_bytes = sample_bytes + ? WHERE id = ?

-- name: ask_to_cancel
-- The first to ask is remembered; a job that has ended cannot be cancelled any more.
INSERT OR IGNORE INTO cancel_request (uuid, asked_at_us, asked_by)
SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM job WHERE uuid = ?1 AND ended_at_us IS NOT NULL)

-- name: cancel_requests
SELECT uuid, asked_at_us, asked_by FROM cancel_request

-- name: forget_cancel_requests
DELETE FROM cancel_request
WHERE EXISTS (SELECT 1 FROM job WHERE job.uuid = cancel_request.uuid AND job.ended_at_us IS NOT NULL)

-- name: last_sample
SELECT max(coalesce((SELECT max(sample_key) FROM sample_tail WHERE sample_key BETWEEN ?1 AND ?2), 0),
           coalesce((SELECT first_key + count - 1 FROM sample_block WHERE first_key BETWEEN ?1 AND ?2
                     ORDER BY first_key DESC LIMIT 1), 0))

-- name: samples
-- One statement, so one snapshot: a sample that moves from the tail to a block is seen once.
SELECT first_key AS sample_key, data FROM sample_block
WHERE first_key BETWEEN ?1 AND ?2 AND first_key + count > ?3
UNION ALL
SELECT sample_key, data FROM sample_tail WHERE sample_key BETWEEN ?3 AND ?2
ORDER BY sample_key

-- name: number_of_uuid
SELECT id FROM job WHERE uuid = ?

-- name: number_of_external_id
SELECT id FROM job WHERE external_id = ? ORDER BY id DESC LIMIT 1

-- name: newest_named
SELECT id FROM job WHERE name = ? ORDER BY id DESC LIMIT 1

-- name: number_exists
SELECT id FROM job WHERE id = ?

-- name: deleted_as
SELECT number, deleted_at_us, deleted_by FROM tombstone
WHERE substr(uuid, 1, length(?2)) = ?2 OR external_id = ?1 OR CAST(number AS TEXT) = ?1
ORDER BY deleted_at_us DESC, number DESC LIMIT 1

-- name: numbers_of_prefix
SELECT id FROM job WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT ?

-- name: records
SELECT job.id, job.status, job.uuid, job.began_at_us, detail.job, detail.attempt, detail.outcome
FROM job JOIN detail ON detail.job_id = job.id
WHERE job.id IN (SELECT value FROM json_each(?))

-- name: unfinished
SELECT id FROM job WHERE status IN ('queued', 'running') ORDER BY began_at_us, id

-- name: unfinished_as_they_stand
SELECT id, status, fence, user FROM job WHERE status IN ('queued', 'running') ORDER BY began_at_us, id

-- name: unfinished_of_user
SELECT id FROM job WHERE status IN ('queued', 'running') AND +user IN (?, '') ORDER BY began_at_us, id

-- name: unfinished_of_run
SELECT id FROM job WHERE status IN ('queued', 'running') AND run_id = (SELECT run.id FROM run WHERE run.uuid = ?)
ORDER BY began_at_us, id

-- name: history
SELECT job.id, {key} FROM job INDEXED BY {index} WHERE {conditions} ORDER BY {key} {direction}, job.id {direction} LIMIT ?

-- name: history_of_tag
-- CROSS JOIN keeps the order of the tables: the tag's jobs first.
SELECT job.id, {key} FROM tag AS driving CROSS JOIN job ON job.id = driving.job_id
WHERE driving.tag = ? AND {conditions} ORDER BY {key} {direction}, job.id {direction} LIMIT ?

-- name: count_jobs
SELECT count(*) FROM job WHERE {conditions}

-- name: count_up_to
SELECT count(*) FROM (SELECT 1 FROM job INDEXED BY {index} WHERE {conditions} LIMIT ?)

-- name: walk
-- One value of a filter, in the order of time.
SELECT job.id AS number, job.began_at_us AS position FROM {source} WHERE {conditions}
ORDER BY {began} {direction}, {number} {direction} LIMIT ?

-- name: walk_tag
SELECT driving.job_id AS number, driving.began_at_us AS position
FROM tag AS driving INDEXED BY tag_by_began CROSS JOIN job ON job.id = driving.job_id
WHERE driving.tag = ? AND {conditions} ORDER BY {began} {direction}, {number} {direction} LIMIT ?

-- name: walk_finding
SELECT driving.job_id AS number, driving.began_at_us AS position
FROM finding AS driving CROSS JOIN job ON job.id = driving.job_id
WHERE driving.code = ? AND {conditions} ORDER BY {began} {direction}, {number} {direction} LIMIT ?

-- name: and_walk
) UNION ALL SELECT * FROM (

-- name: merged_walks
-- A job may have several of the findings.
SELECT DISTINCT number, position FROM (SELECT * FROM ({walks}))
ORDER BY position {direction}, number {direction} LIMIT ?

-- name: newest
SELECT * FROM job INDEXED BY job_by_began WHERE {conditions}
ORDER BY job.began_at_us {direction}, job.id {direction} LIMIT ?

-- name: count_finding_up_to
SELECT count(*) FROM (SELECT 1 FROM finding WHERE code = ? LIMIT ?)

-- name: count_tag_up_to
SELECT count(*) FROM (SELECT 1 FROM tag WHERE tag = ? LIMIT ?)

-- name: where_status
job.status IN (SELECT value FROM json_each(?))

-- name: where_tool
job.tool IN (SELECT value FROM json_each(?))

-- name: where_this_status
job.status = ?

-- name: where_this_tool
job.tool = ?

-- name: where_this_host
job.host <> '' AND job.host = ?

-- name: where_tag
EXISTS (SELECT 1 FROM tag WHERE tag.tag = ? AND tag.job_id = job.id)

-- name: where_external_id
job.external_id = ?

-- name: where_without_tag
job.id NOT IN (SELECT tag.job_id FROM tag WHERE tag.tag = ?)

-- name: where_in_tag
-- The same for a scan of everything that matches: starts from the tag.
job.id IN (SELECT tag.job_id FROM tag WHERE tag.tag = ?)

-- name: where_name
job.name GLOB ?

-- name: where_one_of_names
EXISTS (SELECT 1 FROM json_each(?) AS pattern WHERE job.name GLOB pattern.value)

-- name: where_name_between
job.name >= ? AND job.name < ?

-- name: where_name_contains
instr(job.name, ?) > 0

-- name: where_host
job.host <> '' AND job.host IN (SELECT value FROM json_each(?))

-- name: where_finding
-- The key of a finding has the job's beginning, so this is one look-up per code.
EXISTS (
    SELECT 1 FROM json_each(?) AS wanted JOIN finding ON finding.code = wanted.value
    WHERE finding.began_at_us = job.began_at_us AND finding.job_id = job.id)

-- name: where_since
{began} >= ?

-- name: where_until
{began} < ?

-- name: where_user
job.user = ?

-- name: where_cluster_job
-- No index: few ask, and the documents of all attempts are read in a moment.
EXISTS (
    SELECT 1 FROM detail
    WHERE detail.job_id = job.id
    AND (instr(detail.attempt, CAST(? AS BLOB)) > 0 OR instr(detail.attempt, CAST(? AS BLOB)) > 0)
)

-- name: where_run
job.run_id = (SELECT run.id FROM run WHERE run.uuid = ?)

-- name: where_ended
job.ended_at_us IS NOT NULL

-- name: where_key_known
{key} IS NOT NULL

-- name: where_key_unknown
{key} IS NULL

-- name: where_any
TRUE

-- name: ended_numbers
SELECT job.tool, job.status, job.duration_us, job.cpu_usec, job.memory_bytes FROM job
WHERE job.ended_at_us IS NOT NULL AND {conditions}

-- name: rollup
SELECT tool, status, metric, count, total, largest FROM rollup
WHERE (?1 IS NULL OR tool IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR status IN (SELECT value FROM json_each(?2)))

-- name: sketch
SELECT tool, status, metric, bucket, count FROM sketch
WHERE (?1 IS NULL OR tool IN (SELECT value FROM json_each(?1)))
  AND (?2 IS NULL OR status IN (SELECT value FROM json_each(?2)))

-- name: add_to_rollup
INSERT INTO rollup (tool, status, metric, count, total, largest) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, total = total + excluded.total,
                          largest = max(largest, excluded.largest)

-- name: add_to_sketch
INSERT INTO sketch (tool, status, metric, bucket, count) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count

-- name: clear_rollup
DELETE FROM rollup

-- name: clear_sketch
DELETE FROM sketch

-- name: drop_empty_rollup
DELETE FROM rollup WHERE tool = ? AND status = ? AND count = 0

-- name: drop_empty_sketch
DELETE FROM sketch WHERE tool = ? AND status = ? AND count = 0

-- name: refresh_largest
-- After a job has left the group that may have had the largest value.
UPDATE rollup SET largest = coalesce((
    SELECT max(CASE rollup.metric WHEN 'duration' THEN duration_us WHEN 'cpu' THEN cpu_usec ELSE memory_bytes END)
    FROM job WHERE job.status = rollup.status AND job.tool = rollup.tool AND job.ended_at_us IS NOT NULL), 0)
WHERE tool = ? AND status = ? AND metric = ? AND largest <= ?

-- name: jobs_with_samples
SELECT id, uuid, sample_bytes FROM job INDEXED BY job_with_samples
WHERE sample_bytes > 0 AND ended_at_us IS NOT NULL ORDER BY ended_at_us, id

-- name: jobs_with_samples_before
SELECT id, uuid, sample_bytes FROM job INDEXED BY job_with_samples
WHERE sample_bytes > 0 AND ended_at_us < ? ORDER BY ended_at_us, id

-- name: sample_bytes
SELECT coalesce(sum(sample_bytes), 0) FROM job INDEXED BY job_with_samples WHERE sample_bytes > 0

-- name: count_samples
SELECT coalesce(sum(count), 0) FROM sample_block WHERE first_key BETWEEN ? AND ?

-- name: delete_blocks
DELETE FROM sample_block WHERE first_key BETWEEN ? AND ?

-- name: details_of
SELECT job_id, data FROM job_details WHERE job_id IN (SELECT value FROM json_each(?))

-- name: details_of_uuid
SELECT job_details.data FROM job JOIN job_details ON job_details.job_id = job.id WHERE job.uuid = ?

-- name: put_details
INSERT INTO job_details (job_id, data) VALUES (?, ?) ON CONFLICT DO UPDATE SET data = excluded.data

-- name: add_provenance
INSERT OR IGNORE INTO provenance (digest, data) VALUES (?, ?)

-- name: provenance_of
SELECT data FROM provenance WHERE digest = ?

-- name: delete_details
DELETE FROM job_details WHERE job_id = ?

-- name: newest_details
SELECT job_id, data FROM job_details ORDER BY job_id DESC LIMIT ?

-- name: clear_sample_bytes
UPDATE job SET sample_bytes = 0 WHERE id = ?

-- name: totals
SELECT (SELECT count(*) FROM job), (SELECT count(*) FROM sample_block),
       (SELECT count(*) FROM workflow), (SELECT count(*) FROM run WHERE number IS NOT NULL)

-- name: newest_blocks
SELECT first_key, count, data FROM sample_block ORDER BY first_key DESC LIMIT ?

-- name: jobs_without_detail
SELECT count(*) FROM job WHERE NOT EXISTS (SELECT 1 FROM detail WHERE detail.job_id = job.id)

-- name: runs_only_heard_of
-- Something was written about the run, but never the run itself.
SELECT count(*) FROM run WHERE number IS NULL

-- name: runs_without_workflow
SELECT count(*) FROM run
WHERE number IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workflow WHERE workflow.uuid = run.workflow_uuid)

-- name: hear_of_run
-- So that what is written about a run may come before the run itself.
INSERT OR IGNORE INTO run (uuid) VALUES (?)

-- name: ids_of_runs
SELECT uuid, id FROM run WHERE uuid IN (SELECT value FROM json_each(?))

-- name: insert_workflow
-- One file of one user under one name is one workflow: the one that is there stays.
INSERT OR IGNORE INTO workflow (uuid, name, user, source, detail) SELECT ?1, ?2, ?3, ?4, ?5
WHERE ?4 = '' OR NOT EXISTS (SELECT 1 FROM workflow WHERE source = ?4 AND name = ?2 AND user = ?3)

-- name: workflow_instead_of
-- The one that was there already when this one was to be made.
SELECT uuid FROM workflow
WHERE source = ?2 AND name = ?3 AND user = ?4 AND ?2 <> ''
  AND NOT EXISTS (SELECT 1 FROM workflow WHERE uuid = ?1) ORDER BY id DESC LIMIT 1

-- name: describe_run
-- The first description stands. Numbers count within the workflow.
UPDATE run SET workflow_uuid = ?2, detail = ?3, spec = ?4, number = (
    SELECT coalesce(max(others.number), 0) + 1 FROM run AS others
    WHERE others.workflow_uuid = ?2 AND others.number IS NOT NULL)
WHERE uuid = ?1 AND number IS NULL

-- name: insert_run_event
INSERT OR IGNORE INTO run_event (uuid, run_id, at_us, kind, fact) VALUES (?, ?, ?, ?, ?)

-- name: workflows
SELECT id, detail FROM workflow ORDER BY id DESC

-- name: workflow_of_source
SELECT id, detail FROM workflow WHERE source = ? AND name = ? AND user = ? ORDER BY id DESC LIMIT 1

-- name: workflow_of_number
SELECT id, detail FROM workflow WHERE id = ?

-- name: workflow_of_name
SELECT id, detail FROM workflow WHERE name = ? ORDER BY id DESC LIMIT 1

-- name: workflow_of_uuid
SELECT id, detail FROM workflow WHERE uuid = ?

-- name: workflows_of_prefix
SELECT id, detail FROM workflow WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT ?

-- name: jobs_of_tags
SELECT tag.tag, job.status, count(*), min(job.uuid), min(job.began_at_us)
FROM tag JOIN job ON job.id = tag.job_id WHERE tag.tag >= ? AND tag.tag < ? GROUP BY tag.tag, job.status

-- name: workflow_names
SELECT DISTINCT name FROM workflow

-- name: runs_of_workflow
SELECT run.id, run.number, workflow.id, run.detail
FROM run LEFT JOIN workflow ON workflow.uuid = run.workflow_uuid
WHERE run.workflow_uuid = ? AND run.number IS NOT NULL ORDER BY run.number

-- name: run_of_number
SELECT run.id FROM run WHERE run.workflow_uuid = ? AND run.number = ?

-- name: newest_run
SELECT run.id FROM run WHERE run.workflow_uuid = ? AND run.number IS NOT NULL ORDER BY run.number DESC LIMIT 1

-- name: run_of_uuid
SELECT run.id FROM run WHERE run.uuid = ? AND run.number IS NOT NULL

-- name: runs_of_prefix
SELECT run.id FROM run WHERE run.uuid >= ? AND run.uuid < ? AND run.number IS NOT NULL ORDER BY run.uuid LIMIT ?

-- name: run
SELECT run.number, workflow.id, run.detail, run.spec
FROM run LEFT JOIN workflow ON workflow.uuid = run.workflow_uuid WHERE run.id = ?

-- name: turns_of_run
-- Its starts and ends by the clock: one that waited in a journal may have been written late.
SELECT at_us, fact FROM run_event INDEXED BY run_event_turn
WHERE run_id = ? AND kind IN ('started', 'ended') ORDER BY at_us, id

-- name: spawned_in_run
-- Batches of jobs that were added while it ran, in order.
SELECT fact FROM run_event WHERE run_id = ? AND kind = 'spawned' ORDER BY id

-- name: last_spawned_in_run
SELECT fact FROM run_event WHERE run_id = ? AND kind = 'spawned' ORDER BY id DESC LIMIT 1

-- name: raises_of_run
SELECT fact FROM run_event WHERE run_id = ? AND kind = 'raised' ORDER BY id

-- name: run_events
SELECT run_event.id, run_event.uuid, run_event.at_us, run_event.fact
FROM run JOIN run_event ON run_event.run_id = run.id
WHERE run.uuid = ? AND run_event.id > ? ORDER BY run_event.id

-- name: run_results
SELECT job.run_index, job.run_attempt, job.id, job.uuid, job.status, job.exit_code, job.reason,
       job.began_at_us, job.duration_us, job.cpu_usec, job.memory_bytes, job.fence
FROM job INDEXED BY job_of_run
WHERE job.run_id = (SELECT run.id FROM run WHERE run.uuid = ?) AND job.run_index >= 0
ORDER BY job.run_index, job.run_attempt, job.id

-- name: deleted_run_results
SELECT run_index, run_attempt, number, uuid, status, NULL, NULL, deleted_at_us, NULL, NULL, NULL, 1
FROM tombstone WHERE run_id = (SELECT run.id FROM run WHERE run.uuid = ?) AND run_index >= 0

-- name: reserve_job
-- A job that is only heard of, under the number it has elsewhere; where that is taken it gets another later.
INSERT OR IGNORE INTO job (id, uuid, name, tool, user, status, began_at_us, sample_bytes)
VALUES (?, ?, '', '', '', 'queued', ?, 0)

-- name: reserve_detail
INSERT OR IGNORE INTO detail (job_id) SELECT id FROM job WHERE id = ? AND uuid = ?

-- name: reserve_workflow
INSERT OR IGNORE INTO workflow (id, uuid, name, user, source, detail) VALUES (?, ?, ?, ?, ?, ?)

-- name: names_of_tables
SELECT name FROM sqlite_schema WHERE type = 'table'

-- name: query_of_user
SELECT * FROM (
{text}
) LIMIT {limit}
