-- What readers ask. One query begins at "-- name:" and ends before the next; names are the same in all databases.

-- name: number_of_uuid
SELECT id FROM job WHERE uuid = %s

-- name: number_of_external_id
SELECT id FROM job WHERE external_id = %s ORDER BY id DESC LIMIT 1

-- name: newest_named
SELECT id FROM job WHERE name = %s ORDER BY id DESC LIMIT 1

-- name: number_exists
SELECT id FROM job WHERE id = %s

-- name: deleted_as
WITH wanted AS (SELECT %s::text AS ident, %s::text AS prefix)
SELECT number, deleted_at_us, deleted_by FROM tombstone, wanted
WHERE left(uuid, length(wanted.prefix)) = wanted.prefix OR external_id = wanted.ident OR number::text = wanted.ident
ORDER BY deleted_at_us DESC, number DESC LIMIT 1

-- name: numbers_of_prefix
SELECT id FROM job WHERE uuid >= %s AND uuid < %s ORDER BY uuid LIMIT %s

-- name: records
SELECT job.id, job.status, job.uuid, job.began_at_us, detail.job, detail.attempt, detail.outcome
FROM job JOIN detail ON detail.job_id = job.id
WHERE job.id = ANY(%s::bigint[])

-- name: unfinished
SELECT id FROM job WHERE status IN ('queued', 'running') ORDER BY began_at_us, id

-- name: unfinished_as_they_stand
SELECT id, status, fence, user_name FROM job WHERE status IN ('queued', 'running') ORDER BY began_at_us, id

-- name: unfinished_of_user
SELECT id FROM job WHERE status IN ('queued', 'running') AND user_name IN (%s, '') ORDER BY began_at_us, id

-- name: unfinished_of_run
SELECT id FROM job WHERE status IN ('queued', 'running') AND run_id = (SELECT run.id FROM run WHERE run.uuid = %s)
ORDER BY began_at_us, id

-- name: cancel_requests
SELECT uuid, asked_at_us, asked_by FROM cancel_request

-- name: provenance_of
SELECT data FROM provenance WHERE digest = %s

-- name: details_of_uuid
SELECT job_details.data FROM job JOIN job_details ON job_details.job_id = job.id WHERE job.uuid = %s

-- name: count_jobs
SELECT count(*) FROM job WHERE {conditions}

-- name: history
SELECT job.id, {key} FROM job WHERE {conditions} ORDER BY {key} {direction}, job.id {direction} LIMIT %s

-- name: walk
-- One value of a filter, in the order of time.
SELECT job.id AS number, job.began_at_us AS position FROM {source} WHERE {conditions}
ORDER BY {began} {direction}, {number} {direction} LIMIT %s

-- name: walk_tag
SELECT driving.job_id AS number, driving.began_at_us AS position
FROM tag AS driving JOIN job ON job.id = driving.job_id
WHERE driving.tag = %s AND {conditions} ORDER BY {began} {direction}, {number} {direction} LIMIT %s

-- name: walk_finding
SELECT driving.job_id AS number, driving.began_at_us AS position
FROM finding AS driving JOIN job ON job.id = driving.job_id
WHERE driving.code = %s AND {conditions} ORDER BY {began} {direction}, {number} {direction} LIMIT %s

-- name: and_walk
) AS part UNION ALL SELECT * FROM (

-- name: merged_walks
-- A job may have several of the findings.
SELECT DISTINCT number, position FROM (SELECT * FROM ({walks}) AS part) AS parts
ORDER BY position {direction}, number {direction} LIMIT %s

-- name: newest
SELECT * FROM job WHERE {conditions} ORDER BY job.began_at_us {direction}, job.id {direction} LIMIT %s

-- name: collected
-- By the index of names alone, then sorted: the planner believes that a walk finds them soon.
SELECT named.id, named.began_at_us FROM (SELECT job.id, job.began_at_us FROM job WHERE {named} OFFSET 0) AS named
WHERE {conditions}
ORDER BY named.began_at_us {direction}, named.id {direction} LIMIT %s

-- name: where_this_status
job.status = %s

-- name: where_this_tool
job.tool = %s

-- name: where_this_host
job.host <> '' AND job.host = %s

-- name: where_status
job.status = ANY(%s::text[])

-- name: where_tool
job.tool = ANY(%s::text[])

-- name: where_tag
job.id IN (SELECT tag.job_id FROM tag WHERE tag.tag = %s)

-- name: where_external_id
job.external_id = %s

-- name: where_without_tag
NOT EXISTS (SELECT 1 FROM tag WHERE tag.tag = %s AND tag.job_id = job.id)

-- name: has_tag
SELECT 1 FROM tag WHERE tag.tag = %s LIMIT 1

-- name: where_name
job.name LIKE %s

-- name: where_one_of_names
job.name LIKE ANY(%s::text[])

-- name: where_name_between
job.name >= %s AND job.name < %s

-- name: where_name_contains
strpos(job.name, %s) > 0

-- name: where_host
job.host <> '' AND job.host = ANY(%s::text[])

-- name: where_finding
EXISTS (
    SELECT 1 FROM finding WHERE finding.code = ANY(%s::text[])
    AND finding.began_at_us = job.began_at_us AND finding.job_id = job.id)

-- name: where_since
{began} >= %s

-- name: where_until
{began} < %s

-- name: where_user
job.user_name = %s

-- name: where_cluster_job
-- No index: few ask, and the documents of all attempts are read in a moment.
EXISTS (
    SELECT 1 FROM detail
    WHERE detail.job_id = job.id
    AND (position(convert_to(%s, 'UTF8') IN detail.attempt) > 0
        OR position(convert_to(%s, 'UTF8') IN detail.attempt) > 0)
)

-- name: where_run
job.run_id = (SELECT run.id FROM run WHERE run.uuid = %s)

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

-- name: sums_of_ended
-- The buckets of analysis.statistics, so that a few hundred rows travel in place of all jobs.
SELECT one.tool, one.status, one.metric,
       CASE WHEN one.shown < %s THEN %s ELSE ceil(ln(one.shown) / %s)::integer END AS bucket,
       count(*), sum(one.value), max(one.value)
FROM (
    SELECT job.tool, job.status, known.metric, known.value, known.value::float8 / known.unit AS shown
    FROM job CROSS JOIN LATERAL (VALUES
        ('duration', job.duration_us, %s::float8), ('cpu', job.cpu_usec, %s), ('memory', job.memory_bytes, %s)
    ) AS known (metric, value, unit)
    WHERE job.ended_at_us IS NOT NULL AND known.value IS NOT NULL AND {conditions}
) AS one
GROUP BY one.tool, one.status, one.metric, bucket

-- name: rollup
WITH wanted AS (SELECT %s::text[] AS tools, %s::text[] AS statuses)
SELECT tool, status, metric, sum(count)::bigint, sum(total), max(largest) FROM rollup, wanted
WHERE (wanted.tools IS NULL OR tool = ANY(wanted.tools))
  AND (wanted.statuses IS NULL OR status = ANY(wanted.statuses))
GROUP BY tool, status, metric HAVING sum(count) <> 0

-- name: sketch
WITH wanted AS (SELECT %s::text[] AS tools, %s::text[] AS statuses)
SELECT tool, status, metric, bucket, sum(count)::bigint FROM sketch, wanted
WHERE (wanted.tools IS NULL OR tool = ANY(wanted.tools))
  AND (wanted.statuses IS NULL OR status = ANY(wanted.statuses))
GROUP BY tool, status, metric, bucket HAVING sum(count) <> 0

-- name: workflows
SELECT id, detail FROM workflow ORDER BY id DESC

-- name: workflow_of_source
SELECT id, detail FROM workflow WHERE source = %s AND name = %s AND user_name = %s ORDER BY id DESC LIMIT 1

-- name: workflow_of_number
SELECT id, detail FROM workflow WHERE id = %s

-- name: workflow_of_name
SELECT id, detail FROM workflow WHERE name = %s ORDER BY id DESC LIMIT 1

-- name: workflow_of_uuid
SELECT id, detail FROM workflow WHERE uuid = %s

-- name: workflows_of_prefix
SELECT id, detail FROM workflow WHERE uuid >= %s AND uuid < %s ORDER BY uuid LIMIT %s

-- name: jobs_of_tags
-- By bytes, whatever order the database has for words.
SELECT tag.tag, job.status, count(*), min(job.uuid), min(job.began_at_us)
FROM tag JOIN job ON job.id = tag.job_id
WHERE tag.tag COLLATE "C" >= %s AND tag.tag COLLATE "C" < %s GROUP BY tag.tag, job.status

-- name: workflow_names
SELECT DISTINCT name FROM workflow

-- name: runs_of_workflow
SELECT run.id, run.number, workflow.id, run.detail
FROM run LEFT JOIN workflow ON workflow.uuid = run.workflow_uuid
WHERE run.workflow_uuid = %s AND run.number IS NOT NULL ORDER BY run.number

-- name: run_of_number
SELECT run.id FROM run WHERE run.workflow_uuid = %s AND run.number = %s

-- name: newest_run
SELECT run.id FROM run WHERE run.workflow_uuid = %s AND run.number IS NOT NULL ORDER BY run.number DESC LIMIT 1

-- name: run_of_uuid
SELECT run.id FROM run WHERE run.uuid = %s AND run.number IS NOT NULL

-- name: runs_of_prefix
SELECT run.id FROM run WHERE run.uuid >= %s AND run.uuid < %s AND run.number IS NOT NULL ORDER BY run.uuid LIMIT %s

-- name: run
SELECT run.number, workflow.id, run.detail, run.spec
FROM run LEFT JOIN workflow ON workflow.uuid = run.workflow_uuid WHERE run.id = %s

-- name: turns_of_run
-- Its starts and ends by the clock: one that waited in a journal may have been written late.
SELECT at_us, fact FROM run_event WHERE run_id = %s AND kind IN ('started', 'ended') ORDER BY at_us, id

-- name: spawned_in_run
-- Batches of jobs that were added while it ran, in order.
SELECT fact FROM run_event WHERE run_id = %s AND kind = 'spawned' ORDER BY id

-- name: last_spawned_in_run
SELECT fact FROM run_event WHERE run_id = %s AND kind = 'spawned' ORDER BY id DESC LIMIT 1

-- name: raises_of_run
SELECT fact FROM run_event WHERE run_id = %s AND kind = 'raised' ORDER BY id

-- name: run_events
SELECT run_event.id, run_event.uuid, run_event.at_us, run_event.fact
FROM run JOIN run_event ON run_event.run_id = run.id
WHERE run.uuid = %s AND run_event.id > %s ORDER BY run_event.id

-- name: run_results
SELECT job.run_index, job.run_attempt, job.id, job.uuid, job.status, job.exit_code, job.reason,
       job.began_at_us, job.duration_us, job.cpu_usec, job.memory_bytes, job.fence
FROM job
WHERE job.run_id = (SELECT run.id FROM run WHERE run.uuid = %s) AND job.run_index >= 0
ORDER BY job.run_index, job.run_attempt, job.id

-- name: deleted_run_results
SELECT run_index, run_attempt, number, uuid, status, NULL::integer, NULL::text, deleted_at_us, NULL::bigint, NULL::bigint,
       NULL::bigint, 1
FROM tombstone WHERE run_id = (SELECT run.id FROM run WHERE run.uuid = %s) AND run_index >= 0
