-- +goose Up
-- One index of what is due becomes two, as in PostgreSQL: a takeover loads the
-- tasks in hand and must not walk the parked ones, of which there may be many. A
-- row is in one of them at most, and in none when its task has ended. The tasks in
-- hand are few, so what is overdue among them is found by walking this index alone.
CREATE INDEX tasks_active ON tasks (partition, number, complete_by) WHERE state IN ('processing', 'undoing');
CREATE INDEX tasks_parked ON tasks (partition, complete_by, number) WHERE state = 'pending';
DROP INDEX tasks_due;
-- SQLite cannot know that few rows are in the two: without figures it would walk
-- the primary key. How many rows there are, and how many for one value of the first
-- column, of the first two … The second ANALYZE reads the figures.
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('tasks', 'sqlite_autoindex_tasks_1', '10000000 600000 1'),
    ('tasks', 'tasks_id', '10000000 600000 1'),
    ('tasks', 'tasks_ended', '9000000 500000 1'),
    ('tasks', 'tasks_waiting', '1000000 60000 6000 1'),
    ('tasks', 'tasks_parked', '1000000 60000 2 1'),
    ('tasks', 'tasks_active', '10000 600 1 1');
ANALYZE sqlite_schema;
