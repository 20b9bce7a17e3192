-- +goose NO TRANSACTION
-- +goose Up
-- Where the journal is in generations (PostgreSQL; the tables are made after this),
-- rows of what is forgotten go when all of their generation are. They are not shown.
CREATE OR REPLACE VIEW steps AS
SELECT t.partition, t.number, t.id AS task, t.type, t.round, ps.ordinal, ps.name, ps.agent,
       CASE WHEN j.seq IS NULL AND t.state = 'undone' THEN 'skipped'
            WHEN j.seq IS NULL THEN 'waiting'
            WHEN j.next = ps.ordinal AND j.undo THEN 'undoing'
            WHEN j.next = ps.ordinal THEN 'running'
            WHEN j.step_status = 'waiting' AND t.state = 'undone' THEN 'skipped'
            ELSE j.step_status END AS status,
       CASE WHEN j.seq IS NULL THEN 0 WHEN j.next = ps.ordinal THEN COALESCE(j.next_attempt, 0) ELSE j.attempt END AS attempt,
       CASE WHEN j.next = ps.ordinal OR j.next IS NULL THEN j.due END AS due,
       CASE WHEN j.step = ps.ordinal THEN j.code END AS code,
       CASE WHEN j.step = ps.ordinal THEN j.error END AS error,
       CASE WHEN j.step = ps.ordinal THEN j.result END AS result, j.at, j.actor, j.seq
FROM tasks t
JOIN plan_steps ps ON ps.plan = t.type AND ps.version = t.plan_version
LEFT JOIN LATERAL (
    SELECT * FROM journal x
    WHERE x.partition = t.partition AND x.number = t.number AND x.round = t.round
      AND (x.step = ps.ordinal OR x.next = ps.ordinal)
    ORDER BY x.seq DESC LIMIT 1
) j ON TRUE
WHERE EXISTS (SELECT 1 FROM journal x WHERE x.partition = t.partition AND x.number = t.number)
  AND NOT EXISTS (SELECT 1 FROM partitions p WHERE p.partition = t.partition AND t.state IN ('processed', 'undone') AND t.end_number <= p.forgotten);
