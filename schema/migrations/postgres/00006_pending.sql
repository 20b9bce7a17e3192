-- +goose NO TRANSACTION
-- +goose Up
-- The list of parked tasks goes by number, as all lists do. A task that is not parked
-- is not in it. CONCURRENTLY: commits go on meanwhile, however large the table is; what
-- a build that was cut off has left is dropped before the next.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_pending ON tasks (partition, number) WHERE state = 'pending';
