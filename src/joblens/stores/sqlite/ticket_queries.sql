-- Every query of the SQLite store about tickets and workers.

-- name: insert_ticket
-- Nothing happens when the job has ended, has a ticket, or is not known.
INSERT OR IGNORE INTO ticket (job_id, queue, user, waiting_since_us, is_ready, after_uuid, deliveries, lost_worker, data)
SELECT job.id, ?2, job.user, ?3,
       ?4 IS NULL OR EXISTS (SELECT 1 FROM job AS before WHERE before.uuid = ?4 AND before.status = 'success'),
       ?4, 0, '', ?5
FROM job WHERE job.uuid = ?1 AND job.ended_at_us IS NULL

-- name: waiting_of
SELECT job.id, job.uuid, job.fence, detail.job, ticket.data, ticket.lost_worker, ticket.lost_attempt,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id
WHERE job.{key} IN (SELECT value FROM json_each(?1))
  AND ticket.worker IS NULL AND ticket.is_ready = 1 AND job.status = 'queued' AND detail.job IS NOT NULL
  AND (?2 IS NULL OR ticket.user = ?2)

-- name: oldest_waiting
SELECT waiting_since_us, job_id FROM ticket INDEXED BY ticket_waiting
WHERE queue = ?1 AND worker IS NULL AND is_ready = 1 AND waiting_since_us <= ?2 AND (?3 IS NULL OR user = ?3)
ORDER BY waiting_since_us, job_id LIMIT ?4

-- name: take_ticket
UPDATE ticket SET worker = ?, lease_until_us = ?, deliveries = deliveries + 1 WHERE job_id = ?

-- name: raise_fence
UPDATE job SET fence = ? WHERE id = ?

-- name: held_now
SELECT job.uuid, job.id, job.fence, ticket.worker,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job JOIN ticket ON ticket.job_id = job.id
WHERE job.uuid IN (SELECT value FROM json_each(?)) AND ticket.worker IS NOT NULL

-- name: renew_lease
UPDATE ticket SET lease_until_us = ? WHERE job_id = ?

-- name: announce_worker
INSERT INTO worker (name, seen_at_us, data) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET seen_at_us = excluded.seen_at_us, data = excluded.data

-- name: forget_worker
DELETE FROM worker WHERE name = ?

-- name: forget_workers_before
DELETE FROM worker WHERE seen_at_us < ?

-- name: workers
SELECT seen_at_us, data FROM worker WHERE seen_at_us >= ? ORDER BY seen_at_us DESC, name

-- name: holdings
SELECT job.uuid, job.fence, ticket.worker, ticket.lease_until_us, detail.attempt
FROM ticket INDEXED BY ticket_held JOIN job ON job.id = ticket.job_id JOIN detail ON detail.job_id = job.id
WHERE ticket.worker IS NOT NULL ORDER BY ticket.lease_until_us, job.id

-- name: held_ticket
SELECT job.id, job.status, job.fence, ticket.worker, ticket.deliveries, ticket.data, detail.attempt,
       EXISTS (SELECT 1 FROM cancel_request WHERE cancel_request.uuid = job.uuid)
FROM job LEFT JOIN ticket ON ticket.job_id = job.id JOIN detail ON detail.job_id = job.id WHERE job.uuid = ?

-- name: put_ticket_back
UPDATE ticket SET worker = NULL, lease_until_us = NULL, deliveries = deliveries - ?2,
       lost_worker = coalesce(?3, lost_worker), lost_attempt = CASE WHEN ?3 IS NULL THEN lost_attempt ELSE ?4 END
WHERE job_id = ?1

-- name: queue_again
-- Without the numbers of the attempt that was lost.
UPDATE job SET status = 'queued', sample_bytes = 0,
       began_at_us = coalesce((SELECT detail.job ->> '$.created_at_us' FROM detail WHERE job_id = ?1), began_at_us)
WHERE id = ?1

-- name: forget_attempt
UPDATE detail SET attempt = NULL WHERE job_id = ?

-- name: free_ticket
SELECT job.fence FROM job JOIN ticket ON ticket.job_id = job.id WHERE job.uuid = ? AND ticket.worker IS NULL

-- name: delete_tickets
DELETE FROM ticket WHERE job_id IN (SELECT job.id FROM job WHERE job.uuid IN (SELECT value FROM json_each(?)))

-- name: release_followers
UPDATE ticket SET is_ready = 1, waiting_since_us = ?2
WHERE is_ready = 0 AND after_uuid IN (SELECT value FROM json_each(?1))

-- name: blocked_followers
-- Those after jobs that did not succeed, and those after them.
WITH RECURSIVE blocked (uuid, fence, after_uuid) AS (
    SELECT job.uuid, job.fence, ticket.after_uuid FROM ticket INDEXED BY ticket_after JOIN job ON job.id = ticket.job_id
    WHERE ticket.after_uuid IN (SELECT value FROM json_each(?)) AND ticket.is_ready = 0
    UNION
    SELECT job.uuid, job.fence, ticket.after_uuid FROM blocked JOIN ticket ON ticket.after_uuid = blocked.uuid
    JOIN job ON job.id = ticket.job_id WHERE ticket.is_ready = 0
)
SELECT uuid, fence, after_uuid FROM blocked

-- name: status_of
SELECT status FROM job WHERE uuid = ?

-- name: released_followers
SELECT job.uuid, ticket.queue FROM ticket INDEXED BY ticket_after JOIN job ON job.id = ticket.job_id
WHERE ticket.after_uuid = ? AND ticket.is_ready = 1 AND ticket.worker IS NULL ORDER BY job.id

-- name: backlog
SELECT queue, coalesce(sum(worker IS NULL AND is_ready = 1), 0), coalesce(sum(worker IS NOT NULL), 0),
       min(CASE WHEN worker IS NULL AND is_ready = 1 THEN waiting_since_us END)
FROM ticket GROUP BY queue ORDER BY queue

-- name: states
SELECT uuid, status FROM job WHERE uuid IN (SELECT value FROM json_each(?))
