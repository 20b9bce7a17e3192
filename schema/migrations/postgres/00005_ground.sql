-- +goose NO TRANSACTION
-- +goose Up
-- A commit finds its partition's row as its owner left it: last_commit is the id of
-- the last commit, or of the takeover. A copy of the database that is a second behind,
-- or restored, has another one.
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS last_commit INT8 NOT NULL DEFAULT 0;
-- When a takeover last found that the database had gone back; tasks below which number,
-- and submissions up to which position of the task stream, may have run before.
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS went_back_at TIMESTAMPTZ;
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS went_back_number INT8 NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS went_back_until INT8 NOT NULL DEFAULT 0;
-- Which installation this is; its streams and buckets carry the same id.
CREATE TABLE IF NOT EXISTS installation (
    one       INT8 NOT NULL DEFAULT 1 PRIMARY KEY CHECK (one = 1),
    id        TEXT NOT NULL,
    namespace TEXT NOT NULL DEFAULT ''
);
INSERT INTO installation (id) SELECT gen_random_uuid()::TEXT ON CONFLICT DO NOTHING;
