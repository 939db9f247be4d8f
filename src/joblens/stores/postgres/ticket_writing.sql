-- Tickets that come with a batch of writes, or go with it.

-- name: insert_tickets
-- Nothing happens when the job has ended, has a ticket, or is not known.
INSERT INTO ticket (job_id, queue, user_name, waiting_since_us, is_ready, after_uuid, deliveries, lost_worker, data)
SELECT job.id, new.queue, job.user_name, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       new.after_uuid IS NULL OR EXISTS (
           SELECT 1 FROM job AS before WHERE before.uuid = new.after_uuid AND before.status = 'success'),
       new.after_uuid, 0, '', new.data
FROM unnest(%s::text[], %s::text[], %s::text[], %b::bytea[]) AS new (uuid, queue, after_uuid, data)
JOIN job ON job.uuid = new.uuid
WHERE job.ended_at_us IS NULL
ORDER BY job.id
ON CONFLICT DO NOTHING

-- name: lock_states
SELECT uuid, status FROM job WHERE uuid = ANY(%s::text[]) ORDER BY id FOR NO KEY UPDATE

-- name: delete_tickets
DELETE FROM ticket USING job WHERE ticket.job_id = job.id AND job.uuid = ANY(%s::text[])

-- name: release_followers
UPDATE ticket SET is_ready = true, waiting_since_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE after_uuid = ANY(%s::text[]) AND NOT is_ready

-- name: blocked_followers
SELECT job.uuid, job.fence, ticket.after_uuid, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM ticket JOIN job ON job.id = ticket.job_id
WHERE ticket.after_uuid = ANY(%s::text[]) AND NOT ticket.is_ready ORDER BY job.id
