-- What jobs ran in (code, versions, machine), once for all that ran in the same. An attempt names the digest.
CREATE TABLE provenance (
    digest text COLLATE "C" PRIMARY KEY,
    data bytea NOT NULL                -- JSON as a Zstandard frame
);

ALTER TABLE provenance ALTER COLUMN data SET STORAGE EXTERNAL;
