-- +goose Up
-- The labels of a submission. A task's own are in its row, as its header had them; the table finds the tasks of one. Tasks
-- without labels have a NULL in the first and nothing in the second.
ALTER TABLE tasks ADD COLUMN labels TEXT;
CREATE TABLE labels (
    partition INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (partition, number, key)
) WITHOUT ROWID;
-- Newest first, as on PostgreSQL.
CREATE INDEX labels_found ON labels (key, value, partition, (-number));
