-- Every query of the SQLite store about tickets and workers.

-- name: overwrite_what_goes
PRAGMA secure_delete = ON

-- name: leave_what_goes
PRAGMA secure_delete = OFF

-- name: insert_ticket
-- Nothing happens when the job has ended, has a ticket, or is not known.
INSERT OR IGNORE INTO ticket (job_id, queue, user, waiting_since_us, is_ready, after_uuid, deliveries, lost_worker, data)
SELECT job.id, :queue, job.user, :at_us, :is_ready, :after, 0, '', :data
FROM job WHERE job.uuid = :uuid AND job.ended_at_us IS NULL

-- name: waiting_of
SELECT job.id, job.uuid, job.fence, detail.job, ticket.data, ticket.lost_worker, ticket.lost_attempt,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(:uuids))
  AND ticket.worker IS NULL AND ticket.is_ready = 1 AND job.status = 'queued' AND detail.job IS NOT NULL
  AND (:user IS NULL OR ticket.user = :user)

-- name: oldest_waiting
-- At most so many of each queue, so that a long queue is never read whole.
WITH oldest AS (
    SELECT ticket.job_id, ticket.waiting_since_us
    FROM json_each(:queues) AS queue CROSS JOIN ticket
    WHERE ticket.job_id IN (
        SELECT job_id FROM ticket AS one INDEXED BY ticket_waiting
        WHERE one.queue = queue.value AND one.worker IS NULL AND one.is_ready = 1
          AND one.waiting_since_us <= :until_us AND (:user IS NULL OR one.user = :user)
        ORDER BY one.waiting_since_us, one.job_id LIMIT :most)
    ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT :most
)
SELECT job.id, job.uuid, job.fence, detail.job, ticket.data, ticket.lost_worker, ticket.lost_attempt,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM oldest CROSS JOIN ticket ON ticket.job_id = oldest.job_id
     CROSS JOIN job ON job.id = oldest.job_id CROSS JOIN detail ON detail.job_id = oldest.job_id
WHERE job.status = 'queued' AND detail.job IS NOT NULL
ORDER BY oldest.waiting_since_us, job.id

-- name: first_waiting
SELECT 1 FROM ticket INDEXED BY ticket_waiting
WHERE queue = :queue AND worker IS NULL AND is_ready = 1 AND waiting_since_us <= :until_us
  AND (:user IS NULL OR user = :user)
LIMIT 1

-- name: take_tickets
UPDATE ticket SET worker = :worker, lease_until_us = :until_us, deliveries = deliveries + 1
WHERE job_id IN (SELECT value FROM json_each(:numbers))

-- name: raise_fences
UPDATE job SET fence = fence + 1 WHERE id IN (SELECT value FROM json_each(:numbers))

-- name: held_now
SELECT job.uuid, job.id, job.fence, ticket.worker,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(:uuids)) AND ticket.worker IS NOT NULL

-- name: renew_leases
UPDATE ticket SET lease_until_us = :until_us
WHERE job_id IN (SELECT value FROM json_each(:numbers)) AND worker = :worker RETURNING job_id

-- name: announce_worker
INSERT INTO worker (name, seen_at_us, data, host) VALUES (:name, :at_us, :data, :host)
ON CONFLICT DO UPDATE SET seen_at_us = excluded.seen_at_us, data = excluded.data, host = excluded.host

-- name: count_workers
SELECT count(*) FROM worker WHERE seen_at_us >= :since_us

-- name: forget_worker
DELETE FROM worker WHERE name = :name

-- name: forget_workers_before
DELETE FROM worker WHERE seen_at_us < :before_us

-- name: workers
SELECT seen_at_us, data FROM worker WHERE seen_at_us >= :since_us ORDER BY seen_at_us DESC, name

-- name: workers_of_host
SELECT seen_at_us, data FROM worker WHERE host = :host AND seen_at_us >= :since_us ORDER BY seen_at_us DESC, name

-- name: holdings
SELECT job.uuid, job.fence, ticket.worker, ticket.lease_until_us, detail.attempt
FROM ticket INDEXED BY ticket_held JOIN job ON job.id = ticket.job_id JOIN detail ON detail.job_id = job.id
WHERE ticket.worker IS NOT NULL ORDER BY ticket.lease_until_us, job.id

-- name: holdings_of
SELECT job.uuid, job.fence, ticket.worker, ticket.lease_until_us, detail.attempt
FROM job JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(:uuids)) AND ticket.worker IS NOT NULL
ORDER BY ticket.lease_until_us, job.id

-- name: holdings_near
-- Its own, those of workers of the same host, and those whose lease has run out.
SELECT job.uuid, job.fence, ticket.worker, ticket.lease_until_us, detail.attempt
FROM (SELECT job_id FROM ticket WHERE worker = :worker
      UNION SELECT job_id FROM ticket WHERE worker IN (SELECT name FROM worker WHERE host = :host)
      UNION SELECT job_id FROM ticket WHERE worker IS NOT NULL AND lease_until_us < :at_us) AS near
JOIN ticket ON ticket.job_id = near.job_id JOIN job ON job.id = near.job_id JOIN detail ON detail.job_id = near.job_id
ORDER BY ticket.lease_until_us, job.id

-- name: hold_job
-- Whoever writes is alone.
SELECT id FROM job WHERE uuid = :uuid

-- name: delivery_of
SELECT job.id, job.status, job.fence, ticket.worker, ticket.deliveries, ticket.data, detail.attempt,
       coalesce(detail.job, '{}'), EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN detail ON detail.job_id = job.id LEFT JOIN ticket ON ticket.job_id = job.id WHERE job.uuid = :uuid

-- name: put_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, deliveries = deliveries - 1 WHERE job_id = :number

-- name: put_begun_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, deliveries = deliveries - 1, lost_worker = :worker,
       lost_attempt = :mark
WHERE job_id = :number

-- name: put_lost_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, lost_worker = :worker, lost_attempt = :attempt
WHERE job_id = :number

-- name: queue_again
UPDATE job SET status = 'queued', sample_bytes = 0, began_at_us = :began_at_us WHERE id = :number

-- name: forget_attempt
UPDATE detail SET attempt = NULL WHERE job_id = :number

-- name: forget_details
DELETE FROM job_details WHERE job_id = :number

-- name: forget_samples
DELETE FROM sample_block WHERE first_key BETWEEN :number << 32 AND (:number << 32) + 4294967295;
DELETE FROM sample_tail WHERE sample_key BETWEEN :number << 32 AND (:number << 32) + 4294967295

-- name: delete_tickets
DELETE FROM ticket WHERE job_id IN (SELECT job.id FROM job WHERE job.uuid IN (SELECT value FROM json_each(:uuids)))

-- name: release_followers
UPDATE ticket SET is_ready = 1, waiting_since_us = :at_us
WHERE is_ready = 0 AND after_uuid IN (SELECT value FROM json_each(:uuids))

-- name: blocked_followers
-- Those after jobs that did not succeed, and those after them. Each comes after one, so none is found twice.
WITH RECURSIVE blocked (uuid, fence, after_uuid) AS (
    SELECT job.uuid, job.fence, ticket.after_uuid
    FROM ticket INDEXED BY ticket_after JOIN job ON job.id = ticket.job_id
    WHERE ticket.after_uuid IN (SELECT value FROM json_each(:uuids)) AND ticket.is_ready = 0
    UNION ALL
    SELECT job.uuid, job.fence, ticket.after_uuid
    FROM blocked JOIN ticket ON ticket.after_uuid = blocked.uuid JOIN job ON job.id = ticket.job_id
    WHERE ticket.is_ready = 0
)
SELECT uuid, fence, after_uuid FROM blocked

-- name: released_followers
SELECT job.uuid, ticket.queue FROM ticket INDEXED BY ticket_after JOIN job ON job.id = ticket.job_id
WHERE ticket.after_uuid = :uuid AND ticket.is_ready = 1 AND ticket.worker IS NULL ORDER BY job.id

-- name: released_by
SELECT job.uuid, ticket.queue FROM ticket INDEXED BY ticket_after JOIN job ON job.id = ticket.job_id
WHERE ticket.after_uuid IN (SELECT value FROM json_each(:uuids)) AND ticket.is_ready = 1
  AND ticket.worker IS NULL ORDER BY job.id

-- name: backlog
SELECT queue, sum(worker IS NULL AND is_ready = 1), sum(worker IS NOT NULL),
       min(CASE WHEN worker IS NULL AND is_ready = 1 THEN waiting_since_us END)
FROM ticket GROUP BY queue ORDER BY queue

-- name: tickets_waiting
-- In the order in which workers take them; those that wait for another job are where they were queued.
SELECT job.id, job.uuid, job.name, ticket.user, ticket.queue, ticket.waiting_since_us, ticket.is_ready,
       ticket.after_uuid, ticket.worker, ticket.lease_until_us, ticket.deliveries, ticket.lost_worker
FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.worker IS NULL AND (ticket.waiting_since_us, ticket.job_id) > (:since_us, :number)
  AND (:queue IS NULL OR ticket.queue = :queue) AND (:user IS NULL OR ticket.user = :user)
ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT :most

-- name: tickets_held
SELECT job.id, job.uuid, job.name, ticket.user, ticket.queue, ticket.waiting_since_us, ticket.is_ready,
       ticket.after_uuid, ticket.worker, ticket.lease_until_us, ticket.deliveries, ticket.lost_worker
FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.worker IS NOT NULL AND (ticket.waiting_since_us, ticket.job_id) > (:since_us, :number)
  AND (:queue IS NULL OR ticket.queue = :queue) AND (:user IS NULL OR ticket.user = :user)
ORDER BY ticket.waiting_since_us, ticket.job_id LIMIT :most

-- name: count_tickets_before
SELECT count(*) FROM ticket INDEXED BY ticket_waiting
WHERE queue = :queue AND worker IS NULL AND is_ready = 1 AND (waiting_since_us, job_id) < (:since_us, :number)

-- name: states
SELECT uuid, status FROM job WHERE uuid IN (SELECT value FROM json_each(:uuids))

-- name: former_workers
SELECT job.uuid, ticket.lost_worker, ticket.lost_attempt FROM job JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(:uuids)) AND ticket.worker IS NULL AND ticket.lost_worker <> ''

-- name: states_held
SELECT uuid, status FROM job WHERE uuid IN (SELECT value FROM json_each(:uuids))
