-- Every query of the PostgreSQL store about tickets and workers. Who changes a ticket has its job's row locked
-- first, or takes only what nobody else has locked. What is asked for one at a time (LATERAL) is so because all
-- jobs may be queued while the planner believes that none is, and would read them all.

-- name: now_us
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

-- name: insert_ticket
-- Nothing happens when the job has ended, has a ticket, or is not known.
INSERT INTO ticket (job_id, queue, user_name, waiting_since_us, is_ready, after_uuid, deliveries, lost_worker, data)
SELECT job.id, %(queue)s, job.user_name, %(at_us)s, %(is_ready)s, %(after)s::text, 0, '', %(data)s
FROM job WHERE job.uuid = %(uuid)s AND job.ended_at_us IS NULL
ON CONFLICT DO NOTHING

-- name: waiting_of
SELECT one.* FROM unnest(%(uuids)s::text[]) AS wanted (uuid) CROSS JOIN LATERAL (
    SELECT job.id, job.uuid, job.fence, detail.job, ticket.data, ticket.lost_worker, ticket.lost_attempt,
           EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
    FROM job JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id
    WHERE job.uuid = wanted.uuid
      AND ticket.worker IS NULL AND ticket.is_ready AND job.status = 'queued' AND detail.job IS NOT NULL
      AND (%(user)s::text IS NULL OR ticket.user_name = %(user)s::text)
    FOR NO KEY UPDATE OF job, ticket SKIP LOCKED
) AS one

-- name: oldest_waiting
-- At most so many of each queue, so that a long queue is never read whole. What may have changed since the
-- query began, the fence above all, is read where it is locked: outside there it would be what it was.
SELECT oldest.job_id, oldest.uuid, oldest.fence, detail.job, oldest.data, oldest.lost_worker, oldest.lost_attempt,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = oldest.uuid)
FROM (
    SELECT one.* FROM unnest(%(queues)s::text[]) AS wanted (queue) CROSS JOIN LATERAL (
        SELECT ticket.*, job.uuid, job.fence FROM ticket JOIN job ON job.id = ticket.job_id
        WHERE ticket.queue = wanted.queue AND ticket.worker IS NULL AND ticket.is_ready
          AND ticket.waiting_since_us <= %(until_us)s AND job.status = 'queued'
          AND (%(user)s::text IS NULL OR ticket.user_name = %(user)s::text)
        ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT %(most)s
        FOR NO KEY UPDATE OF job, ticket SKIP LOCKED
    ) AS one
    ORDER BY one.waiting_since_us, one.job_id LIMIT %(most)s
) AS oldest
JOIN detail ON detail.job_id = oldest.job_id
WHERE detail.job IS NOT NULL
ORDER BY oldest.waiting_since_us, oldest.job_id

-- name: is_any_waiting
SELECT joblens.is_any_waiting(%(queues)s::text[], %(user)s::text, %(older_than_us)s::bigint)

-- name: take_tickets
UPDATE ticket SET worker = %(worker)s, lease_until_us = %(until_us)s, deliveries = deliveries + 1
WHERE job_id = ANY(%(numbers)s::bigint[])

-- name: raise_fences
UPDATE job SET fence = fence + 1 WHERE id = ANY(%(numbers)s::bigint[])

-- name: held_now
SELECT job.uuid, job.id, job.fence, ticket.worker,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid = ANY(%(uuids)s::text[]) AND ticket.worker IS NOT NULL

-- name: renew_leases
UPDATE ticket SET lease_until_us = %(until_us)s
WHERE job_id = ANY(%(numbers)s::bigint[]) AND worker = %(worker)s RETURNING job_id

-- name: announce_worker
INSERT INTO worker (name, seen_at_us, data, host) VALUES (%(name)s, %(at_us)s, %(data)s, %(host)s)
ON CONFLICT (name) DO UPDATE SET seen_at_us = excluded.seen_at_us, data = excluded.data, host = excluded.host

-- name: renew_at_once
-- Announces the worker and renews its leases in one go. -> those that it still holds, and whether they are to end.
SELECT held, is_cancelled FROM joblens.renew_leases(
    %(name)s::text, %(host)s::text, %(data)s::bytea, %(lease_us)s::bigint, %(uuids)s::text[], %(fences)s::integer[])

-- name: count_workers
SELECT count(*) FROM worker WHERE seen_at_us >= %(since_us)s

-- name: forget_worker
DELETE FROM worker WHERE name = %(name)s

-- name: forget_workers_before
DELETE FROM worker WHERE seen_at_us < %(before_us)s

-- name: workers
SELECT seen_at_us, data FROM worker WHERE seen_at_us >= %(since_us)s ORDER BY seen_at_us DESC, name

-- name: workers_of_host
SELECT seen_at_us, data FROM worker WHERE host = %(host)s AND seen_at_us >= %(since_us)s ORDER BY seen_at_us DESC, name

-- name: holdings
SELECT one.uuid, one.fence, held.worker, held.lease_until_us, one.attempt
FROM (SELECT job_id, worker, lease_until_us FROM ticket WHERE worker IS NOT NULL OFFSET 0) AS held
CROSS JOIN LATERAL (
    SELECT job.uuid, job.fence, detail.attempt FROM job JOIN detail ON detail.job_id = job.id
    WHERE job.id = held.job_id OFFSET 0) AS one
ORDER BY held.lease_until_us, held.job_id

-- name: holdings_of
SELECT one.uuid, one.fence, one.worker, one.lease_until_us, one.attempt
FROM unnest(%(uuids)s::text[]) AS wanted (uuid) CROSS JOIN LATERAL (
    SELECT job.id, job.uuid, job.fence, ticket.worker, ticket.lease_until_us, detail.attempt
    FROM job JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id
    WHERE job.uuid = wanted.uuid AND ticket.worker IS NOT NULL OFFSET 0) AS one
ORDER BY one.lease_until_us, one.id

-- name: holdings_near
-- Its own, those of workers of the same host, and those whose lease has run out.
SELECT held, its_fence, its_worker, until_us, its_attempt, at_us
FROM joblens.holdings_near(%(worker)s::text, %(host)s::text)

-- name: hold_job
SELECT id FROM job WHERE uuid = %(uuid)s FOR NO KEY UPDATE

-- name: delivery_of
SELECT job.id, job.status, job.fence, ticket.worker, ticket.deliveries, ticket.data, detail.attempt,
       coalesce(detail.job, '{}'), EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN detail ON detail.job_id = job.id LEFT JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid = %(uuid)s

-- name: put_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, deliveries = deliveries - 1 WHERE job_id = %(number)s

-- name: put_begun_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, deliveries = deliveries - 1, lost_worker = %(worker)s,
       lost_attempt = %(mark)s
WHERE job_id = %(number)s

-- name: put_lost_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, lost_worker = %(worker)s, lost_attempt = %(attempt)s
WHERE job_id = %(number)s

-- name: queue_again
UPDATE job SET status = 'queued', sample_bytes = 0, attempt_number = 0, began_at_us = %(began_at_us)s
WHERE id = %(number)s

-- name: forget_attempt
UPDATE detail SET attempt = NULL WHERE job_id = %(number)s

-- name: forget_details
DELETE FROM job_details WHERE job_id = %(number)s

-- name: forget_samples
DELETE FROM sample_piece WHERE job_id = %(number)s

-- name: delete_tickets
SELECT joblens.drop_tickets(%(uuids)s::text[])

-- name: release_followers
UPDATE ticket SET is_ready = true, waiting_since_us = %(at_us)s
WHERE NOT is_ready AND after_uuid = ANY(%(uuids)s::text[])

-- name: blocked_followers
SELECT its_uuid, its_fence, its_after FROM joblens.blocked_followers(%(uuids)s::text[])

-- name: released_followers
SELECT job.uuid, ticket.queue FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.after_uuid = %(uuid)s AND ticket.is_ready AND ticket.worker IS NULL ORDER BY job.id

-- name: released_by
SELECT its_uuid, its_queue FROM joblens.released_by(%(uuids)s::text[])

-- name: backlog
SELECT queue, count(*) FILTER (WHERE worker IS NULL AND is_ready), count(*) FILTER (WHERE worker IS NOT NULL),
       min(waiting_since_us) FILTER (WHERE worker IS NULL AND is_ready)
FROM ticket GROUP BY queue ORDER BY queue

-- name: tickets_waiting
SELECT job.id, job.uuid, job.name, ticket.user_name, ticket.queue, ticket.waiting_since_us, ticket.is_ready,
       ticket.after_uuid, ticket.worker, ticket.lease_until_us, ticket.deliveries, ticket.lost_worker
FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.worker IS NULL AND (ticket.waiting_since_us, ticket.job_id) > (%(since_us)s, %(number)s)
  AND (%(queue)s::text IS NULL OR ticket.queue = %(queue)s) AND (%(user)s::text IS NULL OR ticket.user_name = %(user)s)
ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT %(most)s

-- name: tickets_held
SELECT job.id, job.uuid, job.name, ticket.user_name, ticket.queue, ticket.waiting_since_us, ticket.is_ready,
       ticket.after_uuid, ticket.worker, ticket.lease_until_us, ticket.deliveries, ticket.lost_worker
FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.worker IS NOT NULL AND (ticket.waiting_since_us, ticket.job_id) > (%(since_us)s, %(number)s)
  AND (%(queue)s::text IS NULL OR ticket.queue = %(queue)s) AND (%(user)s::text IS NULL OR ticket.user_name = %(user)s)
ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT %(most)s

-- name: count_tickets_before
SELECT count(*) FROM ticket
WHERE queue = %(queue)s AND worker IS NULL AND is_ready
  AND (waiting_since_us, job_id) < (%(since_us)s, %(number)s)

-- name: states
SELECT uuid, status FROM job WHERE uuid = ANY(%(uuids)s::text[])

-- name: former_workers
SELECT job.uuid, ticket.lost_worker, ticket.lost_attempt FROM job JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid = ANY(%(uuids)s::text[]) AND ticket.worker IS NULL AND ticket.lost_worker <> ''

-- name: states_held
-- Nobody ends one of them before this transaction is over.
SELECT uuid, status FROM job WHERE uuid = ANY(%(uuids)s::text[]) ORDER BY id FOR SHARE
