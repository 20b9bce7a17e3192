-- +goose NO TRANSACTION
-- +goose Up
-- Of tasks in error or undone: the lists of each state by number; the failure groups, one after the other, each with its
-- tasks; and the oldest and newest of a group by the time of its end. CONCURRENTLY, as in 6.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_by_state ON tasks (partition, state, number, type) WHERE state IN ('undone', 'error');
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_groups ON tasks (state, type, fingerprint, partition, number) WHERE state IN ('undone', 'error');
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_group_ends ON tasks (state, type, fingerprint, ended_at) WHERE state IN ('undone', 'error');
