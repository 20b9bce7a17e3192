-- +goose NO TRANSACTION
-- +goose Up
-- When the streams took the messages at the cursors. A stream that was restored, and has
-- grown past a cursor since, has another message there.
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS cursor_stored TIMESTAMPTZ;
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS control_stored TIMESTAMPTZ;
-- The epoch whose owner writes these times: one of a version before moves the cursors alone.
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS stored_epoch INT8 NOT NULL DEFAULT 0;
