-- start_at of a comment
ALTER TABLE tasks ADD COLUMN start_at TIMESTAMPTZ;
