-- +goose Up
-- When the streams took the messages at the cursors. A stream that was restored, and has
-- grown past a cursor since, has another message there.
ALTER TABLE partitions ADD COLUMN cursor_stored INTEGER;
ALTER TABLE partitions ADD COLUMN control_stored INTEGER;
-- The epoch whose owner writes these times: one of a version before moves the cursors alone.
ALTER TABLE partitions ADD COLUMN stored_epoch INTEGER NOT NULL DEFAULT 0;
