-- +goose Up
-- A list of the tasks in one state goes by number and reads no others. Those that end
-- well are in none of these.
CREATE INDEX tasks_pending ON tasks (partition, number) WHERE state = 'pending';
CREATE INDEX tasks_failed ON tasks (partition, number) WHERE state IN ('undone', 'error');
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('tasks', 'tasks_pending', '1000000 60000 1'),
    ('tasks', 'tasks_failed', '100000 6000 1');
ANALYZE sqlite_schema;
