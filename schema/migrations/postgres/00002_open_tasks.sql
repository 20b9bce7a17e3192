-- +goose NO TRANSACTION
-- +goose Up
-- One index of what is due becomes two: a takeover loads the tasks in hand, and
-- must not walk the parked ones, of which there may be many. A row is in one of
-- them at most, so a commit writes no more than before.
CREATE INDEX IF NOT EXISTS tasks_active ON tasks (partition, complete_by, number) WHERE state IN ('processing', 'undoing');
CREATE INDEX IF NOT EXISTS tasks_parked ON tasks (partition, complete_by, number) WHERE state = 'pending';
DROP INDEX IF EXISTS tasks_due;
-- What people look for, and few tasks are: those that end well are in none.
CREATE INDEX IF NOT EXISTS tasks_failed ON tasks (partition, number) WHERE state IN ('undone', 'error');
