-- +goose Up
-- See the migration of the same name for PostgreSQL.
ALTER TABLE partitions ADD COLUMN last_commit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN went_back_at INTEGER;
ALTER TABLE partitions ADD COLUMN went_back_number INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN went_back_until INTEGER NOT NULL DEFAULT 0;
CREATE TABLE installation (
    one       INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (one = 1),
    id        TEXT NOT NULL,
    namespace TEXT NOT NULL DEFAULT ''
);
INSERT INTO installation (id) VALUES (lower(hex(randomblob(16))));
