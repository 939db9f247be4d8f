-- Around queries of people. One query begins at "-- name:" and ends before the next.

-- name: limit_memory
SET LOCAL work_mem = '32MB'; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL hash_mem_multiplier = 1

-- name: see_views_only
SET LOCAL search_path = pg_temp, pg_catalog

-- name: make_query
CREATE TEMP VIEW joblens_query AS SELECT * FROM (
{text}
) AS query

-- name: stored_form
SELECT ev_action::text FROM pg_catalog.pg_rewrite WHERE ev_class = 'pg_temp.joblens_query'::regclass

-- name: other_tables
SELECT pg_class.relname FROM pg_catalog.pg_class
WHERE pg_class.oid = ANY(%s::oid[])
  AND NOT (pg_class.relnamespace = pg_catalog.pg_my_temp_schema() AND pg_class.relname = ANY(%s::text[]))
  AND pg_class.oid <> 'pg_temp.joblens_query'::regclass
LIMIT 1

-- name: other_functions
-- Volatile ones change something or wait; some stable ones run any query or show the server.
SELECT pg_proc.proname FROM pg_catalog.pg_proc
WHERE pg_proc.oid = ANY(%s::oid[]) AND (
    pg_proc.provolatile = 'v' OR pg_proc.pronamespace <> 'pg_catalog'::regnamespace
    OR pg_proc.proname ~ '^(pg_|lo_|inet_|current_setting|has_|database_to_|schema_to_|table_to_|query_to_|cursor_to_|txid_|ts_stat)')
LIMIT 1

-- name: open_cursor
DECLARE joblens_rows NO SCROLL CURSOR FOR SELECT * FROM pg_temp.joblens_query LIMIT {limit}
