-- What is known of a job beside its samples: threads, endpoints, memory in depth, GPUs, container.
CREATE TABLE job_details (
    job_id INTEGER PRIMARY KEY REFERENCES job (id),
    data BLOB NOT NULL                 -- JSON as a Zstandard frame; counted in job.sample_bytes
) STRICT;
