-- What workers do all the time, as functions: a server plans what is in them once a connection, also behind a
-- pooler, where nothing that a client prepares is kept; and each is one round trip. They go by keys one at a time,
-- whatever the planner believes of the tables' sizes when it first sees them.

CREATE FUNCTION joblens.is_free(number bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM joblens.ticket WHERE ticket.job_id = number AND ticket.worker IS NULL);
END $$;

-- Samples and details of running jobs. Those under another fence than the job's, and of jobs that nobody holds any
-- more, are left out. Details take the place of what was there if that is what is thought (md5).
-- -> (number, true) for details that were written, (number, false) for samples of jobs that have ended.
CREATE FUNCTION joblens.take_news(
    piece_jobs bigint[], piece_fences integer[], firsts bigint[], counts integer[], pieces bytea[],
    detail_jobs bigint[], detail_fences integer[], md5s bytea[], details bytea[]
) RETURNS TABLE (number bigint, is_detail boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ended_us bigint;
BEGIN
    FOR i IN 1 .. cardinality(detail_jobs) LOOP
        UPDATE joblens.job_details AS known SET data = details[i]
        WHERE known.job_id = detail_jobs[i] AND decode(md5(known.data), 'hex') = md5s[i]
          AND EXISTS (SELECT 1 FROM joblens.job
                      WHERE job.id = detail_jobs[i] AND job.fence = detail_fences[i] AND job.ended_at_us IS NULL)
          AND (detail_fences[i] = 0 OR NOT EXISTS (
              SELECT 1 FROM joblens.ticket WHERE ticket.job_id = detail_jobs[i] AND ticket.worker IS NULL));
        IF FOUND THEN
            number := detail_jobs[i];
            is_detail := true;
            RETURN NEXT;
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(piece_jobs) LOOP
        INSERT INTO joblens.sample_piece (job_id, fence, first_index, count, data)
        SELECT piece_jobs[i], piece_fences[i], firsts[i], counts[i], pieces[i] FROM joblens.job
        WHERE job.id = piece_jobs[i] AND job.fence = piece_fences[i] AND (piece_fences[i] = 0 OR NOT EXISTS (
            SELECT 1 FROM joblens.ticket WHERE ticket.job_id = piece_jobs[i] AND ticket.worker IS NULL))
        ON CONFLICT DO NOTHING;
        SELECT job.ended_at_us INTO ended_us FROM joblens.job WHERE job.id = piece_jobs[i];
        IF ended_us IS NOT NULL THEN
            number := piece_jobs[i];
            is_detail := false;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- A worker says that it is alive and renews its leases. -> those that it still holds, and whether they are to end.
CREATE FUNCTION joblens.renew_leases(
    worker_name text, worker_host text, worker_data bytea, lease_us bigint, uuids text[], fences integer[]
) RETURNS TABLE (held text, is_cancelled boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
    -- Not waited for until it is on disk: a server that forgets a renewal gets the next one soon.
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE joblens.worker SET seen_at_us = at_us, data = worker_data, host = worker_host WHERE worker.name = worker_name;
    IF NOT FOUND THEN
        INSERT INTO joblens.worker (name, seen_at_us, data, host) VALUES (worker_name, at_us, worker_data, worker_host)
        ON CONFLICT (name) DO UPDATE SET seen_at_us = excluded.seen_at_us, data = excluded.data, host = excluded.host;
    END IF;
    FOR i IN 1 .. cardinality(uuids) LOOP
        UPDATE joblens.ticket SET lease_until_us = at_us + lease_us FROM joblens.job
        WHERE job.uuid = uuids[i] AND job.fence = fences[i]
          AND ticket.job_id = job.id AND ticket.worker = worker_name;
        IF FOUND THEN
            held := uuids[i];
            is_cancelled := EXISTS (SELECT 1 FROM joblens.cancel_request WHERE cancel_request.uuid = uuids[i]);
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- A worker's own tickets, those of workers of the same host, and those whose lease has run out. Leases are looked up
-- in the order of their index, which forgets on the way those that were renewed since.
CREATE FUNCTION joblens.holdings_near(worker_name text, worker_host text)
RETURNS TABLE (held text, its_fence integer, its_worker text, until_us bigint, its_attempt bytea, at_us bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    names text[] := ARRAY(SELECT worker.name FROM joblens.worker WHERE worker.host = worker_host) || worker_name;
    number bigint;
BEGIN
    at_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    FOR number, its_worker, until_us IN
        SELECT ticket.job_id, ticket.worker, ticket.lease_until_us FROM joblens.ticket WHERE ticket.worker = ANY(names)
        UNION
        SELECT ticket.job_id, ticket.worker, ticket.lease_until_us FROM joblens.ticket
        WHERE ticket.worker IS NOT NULL AND ticket.lease_until_us < at_us
        ORDER BY 3, 1
    LOOP
        SELECT job.uuid, job.fence, detail.attempt INTO held, its_fence, its_attempt
        FROM joblens.job JOIN joblens.detail ON detail.job_id = job.id WHERE job.id = number;
        IF FOUND THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- What is already known of jobs, and nobody else changes them meanwhile. Whether nobody holds a job that workers
-- take is asked when its row is locked.
CREATE FUNCTION joblens.hold_jobs(uuids text[])
RETURNS TABLE (its_uuid text, its_id bigint, its_status text, its_tool text, its_began_at_us bigint,
    its_ended_at_us bigint, its_duration_us bigint, its_cpu_usec bigint, its_memory_bytes bigint, its_exit_code integer,
    its_reason text, is_described boolean, its_attempt_number integer, its_fence integer, is_free boolean)
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    FOR its_uuid, its_id, its_status, its_tool, its_began_at_us, its_ended_at_us, its_duration_us, its_cpu_usec,
        its_memory_bytes, its_exit_code, its_reason, is_described, its_attempt_number, its_fence IN
        SELECT job.uuid, job.id, job.status, job.tool, job.began_at_us, job.ended_at_us, job.duration_us, job.cpu_usec,
               job.memory_bytes, job.exit_code, job.reason,
               (SELECT detail.job IS NOT NULL FROM joblens.detail WHERE detail.job_id = job.id),
               job.attempt_number, job.fence
        FROM joblens.job WHERE job.uuid = ANY(uuids) ORDER BY job.id FOR NO KEY UPDATE OF job
    LOOP
        is_free := its_fence > 0 AND joblens.is_free(its_id);
        RETURN NEXT;
    END LOOP;
END $$;

-- Of a job that is locked: other pieces in the place of some.
CREATE FUNCTION joblens.replace_pieces(
    number bigint, its_fence integer, old_firsts bigint[], old_counts integer[],
    new_firsts bigint[], new_counts integer[], new_data bytea[]
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    FOR i IN 1 .. cardinality(old_firsts) LOOP
        DELETE FROM joblens.sample_piece AS piece
        WHERE piece.job_id = number AND piece.fence = its_fence
          AND piece.first_index = old_firsts[i] AND piece.count = old_counts[i];
    END LOOP;
    FOR i IN 1 .. cardinality(new_firsts) LOOP
        INSERT INTO joblens.sample_piece (job_id, fence, first_index, count, data)
        VALUES (number, its_fence, new_firsts[i], new_counts[i], new_data[i]) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Of ended jobs: what their samples take is noted. -> how many pieces and samples each has.
CREATE FUNCTION joblens.measure_samples(numbers bigint[])
RETURNS TABLE (number bigint, pieces bigint, samples bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    bytes bigint;
BEGIN
    FOREACH number IN ARRAY numbers LOOP
        SELECT count(*), coalesce(sum(piece.count), 0), coalesce(sum(octet_length(piece.data)), 0)
        INTO pieces, samples, bytes FROM joblens.sample_piece AS piece
        WHERE piece.job_id = measure_samples.number
          AND piece.fence = (SELECT job.fence FROM joblens.job WHERE job.id = measure_samples.number);
        bytes := bytes + coalesce((
            SELECT octet_length(known.data) FROM joblens.job_details AS known
            WHERE known.job_id = measure_samples.number), 0);
        UPDATE joblens.job SET sample_bytes = bytes WHERE job.id = measure_samples.number;
        RETURN NEXT;
    END LOOP;
END $$;

-- Jobs after those that did not succeed, and those after them. Each comes after one, so none is found twice.
CREATE FUNCTION joblens.blocked_followers(uuids text[])
RETURNS TABLE (its_uuid text, its_fence integer, its_after text) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    before text[] := uuids;
BEGIN
    WHILE cardinality(before) > 0 LOOP
        RETURN QUERY SELECT job.uuid, job.fence, ticket.after_uuid
            FROM joblens.ticket JOIN joblens.job ON job.id = ticket.job_id
            WHERE ticket.after_uuid = ANY(before) AND NOT ticket.is_ready;
        before := ARRAY(
            SELECT job.uuid FROM joblens.ticket JOIN joblens.job ON job.id = ticket.job_id
            WHERE ticket.after_uuid = ANY(before) AND NOT ticket.is_ready);
    END LOOP;
END $$;

-- Outcomes are added to the sums over ended jobs.
CREATE FUNCTION joblens.add_sums(
    tools text[], statuses text[], metrics text[], shards smallint[], counts bigint[], totals numeric[], largests bigint[],
    sketch_tools text[], sketch_statuses text[], sketch_metrics text[], buckets integer[], sketch_shards smallint[],
    sketch_counts bigint[]
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    FOR i IN 1 .. cardinality(tools) LOOP
        INSERT INTO joblens.rollup AS known (tool, status, metric, shard, count, total, largest)
        VALUES (tools[i], statuses[i], metrics[i], shards[i], counts[i], totals[i], largests[i])
        ON CONFLICT (tool, status, metric, shard) DO UPDATE SET count = known.count + excluded.count,
            total = known.total + excluded.total, largest = greatest(known.largest, excluded.largest);
    END LOOP;
    FOR i IN 1 .. cardinality(sketch_tools) LOOP
        INSERT INTO joblens.sketch AS known (tool, status, metric, bucket, shard, count)
        VALUES (sketch_tools[i], sketch_statuses[i], sketch_metrics[i], buckets[i], sketch_shards[i], sketch_counts[i])
        ON CONFLICT (tool, status, metric, bucket, shard) DO UPDATE SET count = known.count + excluded.count;
    END LOOP;
END $$;

-- Rows that are written again and again leave dead ones behind: cleared away before they are many.
ALTER TABLE worker SET (autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_threshold = 2000);
ALTER TABLE ticket SET (autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_threshold = 2000);
ALTER TABLE job_details SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);
ALTER TABLE rollup SET (autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_threshold = 1000);
ALTER TABLE sketch SET (autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_threshold = 1000);

-- Whether there is a ticket that a worker of these queues might take; `only_user`: NULL for everybody's.
CREATE FUNCTION joblens.is_any_waiting(queues text[], only_user text, older_than_us bigint) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    until_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - older_than_us;
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY queues LOOP
        PERFORM 1 FROM joblens.ticket
        WHERE ticket.queue = wanted AND ticket.worker IS NULL AND ticket.is_ready
          AND ticket.waiting_since_us <= until_us AND (only_user IS NULL OR ticket.user_name = only_user)
        ORDER BY ticket.waiting_since_us LIMIT 1;
        IF FOUND THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- Tickets of jobs that have ended go.
CREATE FUNCTION joblens.drop_tickets(uuids text[]) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    DELETE FROM joblens.ticket USING joblens.job WHERE job.id = ticket.job_id AND job.uuid = ANY(uuids);
END $$;

-- Those that may be taken because jobs before them have succeeded.
CREATE FUNCTION joblens.released_by(uuids text[]) RETURNS TABLE (its_uuid text, its_queue text) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY SELECT job.uuid, ticket.queue FROM joblens.ticket JOIN joblens.job ON job.id = ticket.job_id
        WHERE ticket.after_uuid = ANY(uuids) AND ticket.is_ready AND ticket.worker IS NULL ORDER BY job.id;
END $$;
