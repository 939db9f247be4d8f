-- What jobs ran in (code, versions, machine), once for all that ran in the same. An attempt names the digest.
CREATE TABLE provenance (
    digest TEXT PRIMARY KEY,
    data BLOB NOT NULL                 -- JSON as a Zstandard frame
) STRICT, WITHOUT ROWID;
