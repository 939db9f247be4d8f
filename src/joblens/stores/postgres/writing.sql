-- What writers do. One query begins at "-- name:" and ends before the next. Rows come as arrays, one a column,
-- so that a batch is one statement a table; an empty piece of bytes stands for NULL.

-- name: known_jobs
-- What is already known of the jobs that a batch of writes is about, and nobody else changes them meanwhile.
SELECT * FROM joblens.hold_jobs(%s::text[])

-- name: insert_jobs
-- Whoever comes second with the same job gets no row back, nor does a deleted job.
INSERT INTO job (uuid, external_id, name, tool, user_name, status, began_at_us, ended_at_us, duration_us, cpu_usec,
                 memory_bytes, exit_code, reason, run_id, run_index, run_attempt, attempt_number, fence, host)
SELECT uuid, external_id, name, tool, user_name, status, began_at_us, ended_at_us, duration_us, cpu_usec,
       memory_bytes, exit_code, reason, run_id, run_index, run_attempt, attempt_number, fence, host
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],
            %s::bigint[], %s::bigint[], %s::bigint[], %s::integer[], %s::text[], %s::bigint[], %s::integer[],
            %s::integer[], %s::integer[], %s::integer[], %s::text[])
     WITH ORDINALITY AS new (uuid, external_id, name, tool, user_name, status, began_at_us, ended_at_us, duration_us,
                             cpu_usec, memory_bytes, exit_code, reason, run_id, run_index, run_attempt,
                             attempt_number, fence, host, place)
WHERE NOT EXISTS (SELECT 1 FROM tombstone WHERE tombstone.uuid = new.uuid)
ORDER BY place
ON CONFLICT (uuid) DO NOTHING
RETURNING uuid, id

-- name: insert_details
INSERT INTO detail (job_id, job, attempt, outcome)
SELECT job_id, nullif(job, ''), nullif(attempt, ''), nullif(outcome, '')
FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[]) AS new (job_id, job, attempt, outcome)

-- name: describe_jobs
UPDATE job SET external_id = new.external_id, name = new.name, tool = new.tool, user_name = new.user_name,
               run_id = new.run_id, run_index = new.run_index, run_attempt = new.run_attempt
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::integer[], %s::integer[])
     AS new (id, external_id, name, tool, user_name, run_id, run_index, run_attempt)
WHERE job.id = new.id

-- name: change_jobs
UPDATE job SET status = new.status, began_at_us = new.began_at_us, attempt_number = new.attempt_number,
               ended_at_us = new.ended_at_us, duration_us = new.duration_us, cpu_usec = new.cpu_usec,
               memory_bytes = new.memory_bytes, exit_code = new.exit_code, reason = new.reason,
               host = coalesce(nullif(new.host, ''), job.host)
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::bigint[], %s::integer[], %s::text[], %s::text[])
     AS new (id, status, began_at_us, attempt_number, ended_at_us, duration_us, cpu_usec, memory_bytes,
             exit_code, reason, host)
WHERE job.id = new.id

-- name: change_details
UPDATE detail SET job = coalesce(nullif(new.job, ''), detail.job),
                  attempt = coalesce(nullif(new.attempt, ''), detail.attempt),
                  outcome = coalesce(nullif(new.outcome, ''), detail.outcome)
FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[]) AS new (job_id, job, attempt, outcome)
WHERE detail.job_id = new.job_id

-- name: drop_findings
-- Of jobs that were lost and have a true outcome now; before that is written.
DELETE FROM finding USING job JOIN detail ON detail.job_id = job.id
     CROSS JOIN LATERAL json_array_elements(convert_from(detail.outcome, 'UTF8')::json -> 'findings') AS found (value)
WHERE job.id = ANY(%s::bigint[]) AND finding.job_id = job.id AND finding.began_at_us = job.began_at_us
  AND finding.code = found.value ->> 'code'

-- name: insert_findings
INSERT INTO finding (code, began_at_us, job_id)
SELECT new.code, job.began_at_us, job.id FROM unnest(%s::text[], %s::bigint[]) AS new (code, job_id)
JOIN job ON job.id = new.job_id
ON CONFLICT DO NOTHING

-- name: insert_tags
INSERT INTO tag (tag, job_id, began_at_us)
SELECT new.tag, job.id, job.began_at_us FROM unnest(%s::text[], %s::bigint[]) AS new (tag, job_id)
JOIN job ON job.id = new.job_id
ON CONFLICT DO NOTHING

-- name: move_tags
-- Jobs that were known before they began are listed by their beginning now. A text with the character 0 is not
-- taken apart.
UPDATE tag SET began_at_us = described.began_at_us
FROM (
    SELECT job.id, job.began_at_us, json_array_elements_text(CASE
        WHEN strpos(convert_from(detail.job, 'UTF8'), '\u0000') = 0
        THEN convert_from(detail.job, 'UTF8')::json -> 'tags' END) AS tag
    FROM job JOIN detail ON detail.job_id = job.id WHERE job.id = ANY(%s::bigint[])
) AS described
WHERE tag.tag = described.tag AND tag.job_id = described.id

-- name: hold_jobs_to_cancel
-- Whoever is ending one of them comes first, or finds what is asked for here and removes it.
SELECT id FROM job WHERE uuid = ANY(%s::text[]) ORDER BY id FOR SHARE

-- name: ask_to_cancel
-- The first to ask is remembered; a job that has ended cannot be cancelled any more.
INSERT INTO cancel_request (uuid, asked_at_us, asked_by)
SELECT new.* FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS new (uuid, asked_at_us, asked_by)
WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.uuid = new.uuid AND job.ended_at_us IS NOT NULL)
ORDER BY new.uuid
ON CONFLICT DO NOTHING

-- name: forget_cancel_requests
DELETE FROM cancel_request WHERE uuid = ANY(%s::text[])

-- name: details_of
SELECT job_id, data FROM job_details WHERE job_id = ANY(%s::bigint[])

-- name: add_provenance
INSERT INTO provenance (digest, data) SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT DO NOTHING

-- name: put_details
INSERT INTO job_details (job_id, data) SELECT * FROM unnest(%b::bigint[], %b::bytea[])
ON CONFLICT (job_id) DO UPDATE SET data = excluded.data

-- name: add_sums
SELECT joblens.add_sums(%s::text[], %s::text[], %s::text[], %s::smallint[], %s::bigint[], %s::numeric[], %s::bigint[],
                        %s::text[], %s::text[], %s::text[], %s::integer[], %s::smallint[], %s::bigint[])

-- name: lock_rollup
-- Those who add to these have committed then, or will add after this.
SELECT 1 FROM rollup WHERE tool = %s AND status = %s ORDER BY tool, status, metric, shard FOR UPDATE

-- name: refresh_largest
-- After a job has left the group that may have had the largest value.
UPDATE rollup SET largest = coalesce((
    SELECT max(CASE rollup.metric WHEN 'duration' THEN duration_us WHEN 'cpu' THEN cpu_usec ELSE memory_bytes END)
    FROM job WHERE job.status = rollup.status AND job.tool = rollup.tool AND job.ended_at_us IS NOT NULL), 0)
WHERE tool = %s AND status = %s AND metric = %s AND largest <= %s

-- name: lock_workflows
-- One at a time may make workflows: a file has one, whoever comes first.
SELECT pg_advisory_xact_lock(7738151190)

-- name: insert_workflow
-- One file of one user under one name is one workflow: the one that is there stays.
INSERT INTO workflow (uuid, name, user_name, source, detail)
SELECT %(uuid)s::text, %(name)s::text, %(user)s::text, %(source)s::text, %(detail)s::bytea
WHERE %(source)s = '' OR NOT EXISTS (
    SELECT 1 FROM workflow WHERE source = %(source)s AND name = %(name)s AND user_name = %(user)s)
ON CONFLICT (uuid) DO NOTHING

-- name: workflow_instead_of
-- The one that was there already when this one was to be made.
SELECT uuid FROM workflow
WHERE source = %(source)s AND name = %(name)s AND user_name = %(user)s AND %(source)s <> ''
  AND NOT EXISTS (SELECT 1 FROM workflow WHERE uuid = %(uuid)s) ORDER BY id DESC LIMIT 1

-- name: hear_of_runs
-- So that what is written about a run may come before the run itself.
INSERT INTO run (uuid) SELECT unnest(%s::text[]) ORDER BY 1 ON CONFLICT (uuid) DO NOTHING

-- name: ids_of_runs
SELECT uuid, id FROM run WHERE uuid = ANY(%s::text[])

-- name: lock_runs
-- Their events get numbers in the order in which they are seen: who reads on from a number misses none.
SELECT id FROM run WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE

-- name: describe_run
-- The first description stands. Numbers count within the workflow.
UPDATE run SET workflow_uuid = %(workflow)s, detail = %(detail)s, spec = %(spec)s, number = (
    SELECT coalesce(max(others.number), 0) + 1 FROM run AS others
    WHERE others.workflow_uuid = %(workflow)s AND others.number IS NOT NULL)
WHERE uuid = %(uuid)s AND number IS NULL

-- name: insert_run_events
INSERT INTO run_event (uuid, run_id, at_us, kind, fact)
SELECT uuid, run_id, at_us, kind, fact
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::text[], %b::bytea[])
     WITH ORDINALITY AS new (uuid, run_id, at_us, kind, fact, place)
ORDER BY place
ON CONFLICT (uuid) DO NOTHING

-- name: take_news
-- The everyday write: samples, and details in the place of others. -> (number, true) for details that were written,
-- (number, false) for samples of jobs that have ended
SELECT number, is_detail FROM joblens.take_news(
    %(job_ids)b::bigint[], %(fences)b::integer[], %(firsts)b::bigint[], %(counts)b::integer[], %(data)b::bytea[],
    %(detail_ids)b::bigint[], %(detail_fences)b::integer[], %(md5s)b::bytea[], %(details)b::bytea[])

-- name: measure_samples
-- Of ended jobs; -> how many pieces and samples each has.
SELECT number, pieces, samples FROM joblens.measure_samples(%s::bigint[])

-- name: lock_job
SELECT fence, ended_at_us IS NOT NULL FROM job WHERE id = %s FOR NO KEY UPDATE

-- name: small_pieces
SELECT first_index, count, data FROM sample_piece
WHERE job_id = %s AND fence = %s AND count < %s ORDER BY first_index, count

-- name: replace_pieces
SELECT joblens.replace_pieces(%b::bigint, %b::integer, %b::bigint[], %b::integer[], %b::bigint[], %b::integer[],
                              %b::bytea[])

-- name: unsettled_jobs
-- Ended, and their samples still lie as they were written.
SELECT job.id FROM job JOIN sample_piece AS piece ON piece.job_id = job.id AND piece.fence = job.fence
WHERE job.ended_at_us IS NOT NULL
GROUP BY job.id HAVING count(*) > %s OR sum(piece.count) >= %s AND bool_or(get_byte(piece.data, 0) = 16)
ORDER BY job.id

-- name: drop_old_pieces
-- Of attempts that were lost.
DELETE FROM sample_piece USING job WHERE job.id = sample_piece.job_id AND job.fence > sample_piece.fence

-- name: samples
-- One statement, so one snapshot: a sample that moves into a block is seen.
SELECT piece.first_index, piece.data
FROM job JOIN sample_piece AS piece ON piece.job_id = job.id AND piece.fence = job.fence
WHERE job.uuid = %s AND piece.first_index + piece.count > %s
ORDER BY piece.first_index, piece.count DESC

-- name: tails
-- Of many jobs, of each the last pieces only: every piece has a sample at least.
SELECT wanted.uuid, piece.first_index, piece.data
FROM unnest(%s::text[], %s::bigint[]) AS wanted (uuid, first_index)
CROSS JOIN LATERAL (
    SELECT piece.first_index, piece.count, piece.data
    FROM job JOIN sample_piece AS piece ON piece.job_id = job.id AND piece.fence = job.fence
    WHERE job.uuid = wanted.uuid AND piece.first_index + piece.count > wanted.first_index
    ORDER BY piece.first_index DESC, piece.count DESC LIMIT %s
) AS piece
ORDER BY piece.first_index, piece.count DESC
