-- +goose Up
-- See the migration of the same name for PostgreSQL.
CREATE TABLE chain (
    partition INTEGER NOT NULL,
    height    INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    commit_id INTEGER NOT NULL,
    linked_at INTEGER,
    kind      INTEGER NOT NULL,
    content   BLOB    NOT NULL,
    hash      BLOB    NOT NULL,
    PRIMARY KEY (partition, height)
) WITHOUT ROWID;
ALTER TABLE partitions ADD COLUMN chain_epoch INTEGER NOT NULL DEFAULT 0;
