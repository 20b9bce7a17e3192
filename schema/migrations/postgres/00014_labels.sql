-- +goose NO TRANSACTION
-- +goose Up
-- The labels of a submission. A task's own are in its row, as its header had them; the table finds the tasks of one. Tasks
-- without labels have a NULL in the first and nothing in the second.
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS labels TEXT;
CREATE TABLE IF NOT EXISTS labels (
    partition INT8 NOT NULL,
    number    INT8 NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (partition, number, key)
);
-- Newest first. By -number, because no other index has that order: a planner would else walk the key of the table in the
-- hope of a match, which may be far.
CREATE INDEX IF NOT EXISTS labels_found ON labels (key, value, partition, (-number));
