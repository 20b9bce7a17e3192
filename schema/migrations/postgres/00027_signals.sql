-- +goose NO TRANSACTION
-- +goose Up
-- The signal steps of a task that wait for their answers: bit i of signal_steps is step i; since when the first of them, and
-- until when the first. NULL in tasks without.
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS signal_steps INT8;
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS signal_since TIMESTAMPTZ;
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS signal_due TIMESTAMPTZ;
UPDATE tasks SET signal_steps = o.steps, signal_since = o.since, signal_due = o.due
FROM (
    SELECT s.partition, s.number, CAST(sum(CAST(1 AS INT8) << CAST(s.ordinal AS INT2)) AS INT8) AS steps, min(s.at) AS since, min(s.due) AS due
    FROM steps s WHERE s.kind = 'signal' AND s.status = 'running' AND s.task_state IN ('pending', 'processing') GROUP BY s.partition, s.number
) AS o WHERE tasks.partition = o.partition AND tasks.number = o.number;
-- Their list, the oldest, and the most urgent. CONCURRENTLY, as in 6.
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_signals ON tasks (partition, number) WHERE signal_steps IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_signal_since ON tasks (signal_since) WHERE signal_steps IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS tasks_signal_due ON tasks (signal_due, signal_steps) WHERE signal_steps IS NOT NULL;
