-- +goose Up
-- See the migration of the same name for PostgreSQL.
DROP VIEW steps;
CREATE VIEW steps AS
SELECT s.partition, s.number, s.task, s.type, s.round, s.ordinal, s.name, s.agent,
       CASE WHEN NOT s.again OR s.status <> 'done' THEN s.status WHEN s.state = 'undone' THEN 'skipped' ELSE 'waiting' END AS status,
       CASE WHEN s.again THEN 0 ELSE s.attempt END AS attempt, CASE WHEN NOT s.again THEN s.due END AS due,
       s.code, s.error, s.result, s.at, s.actor, s.seq, s.step_kind AS kind, s.state AS task_state
FROM (
    SELECT b.*, CASE b.status
           WHEN 'undoing' THEN EXISTS (SELECT 1 FROM journal x WHERE x.partition = b.partition AND x.number = b.number
               AND x.round = b.round AND x.seq > b.seq AND x.kind IN ('cancelled', 'undo_asked'))
           WHEN 'done' THEN b.kind <> 'accepted' AND EXISTS (SELECT 1 FROM journal x WHERE x.partition = b.partition AND x.number = b.number
               AND x.round = b.round AND x.seq > b.seq AND x.kind = 'went_back'
               AND (x.state IN ('pending', 'processing', 'error') OR EXISTS (SELECT 1 FROM journal y WHERE y.partition = x.partition AND y.number = x.number
               AND y.round = x.round AND y.seq > x.seq AND y.kind = 'resubmitted')))
           ELSE FALSE END AS again
    FROM (
        SELECT t.partition, t.number, t.id AS task, t.type, t.state, t.round, ps.ordinal, ps.name, ps.agent, ps.kind AS step_kind,
               CASE WHEN j.seq IS NULL AND t.state = 'undone' THEN 'skipped'
                    WHEN j.seq IS NULL THEN 'waiting'
                    WHEN j.next = ps.ordinal AND j.undo THEN 'undoing'
                    WHEN j.next = ps.ordinal AND ps.kind IN ('wait', 'signal') AND t.state IN ('undoing', 'undone') THEN 'skipped'
                    WHEN j.next = ps.ordinal THEN 'running'
                    WHEN j.step_status = 'waiting' AND t.state = 'undone' THEN 'skipped'
                    WHEN j.kind = 'signalled' THEN 'signalled'
                    ELSE j.step_status END AS status,
               CASE WHEN j.seq IS NULL THEN 0 WHEN j.next = ps.ordinal THEN COALESCE(j.next_attempt, 0) ELSE j.attempt END AS attempt,
               CASE WHEN j.next = ps.ordinal OR j.next IS NULL THEN j.due END AS due,
               CASE WHEN j.step = ps.ordinal THEN j.code END AS code,
               CASE WHEN j.step = ps.ordinal THEN j.error END AS error,
               CASE WHEN j.step = ps.ordinal THEN j.result END AS result, j.at, j.actor, j.seq, j.kind
        FROM tasks t
        JOIN plan_steps ps ON ps.plan = t.type AND ps.version = t.plan_version
        LEFT JOIN journal j ON j.partition = t.partition AND j.number = t.number AND j.seq = (
            SELECT max(x.seq) FROM journal x
            WHERE x.partition = t.partition AND x.number = t.number AND x.round = t.round
              AND (x.step = ps.ordinal OR x.next = ps.ordinal) AND (x.kind <> 'late' OR x.code <> 0))
        WHERE EXISTS (SELECT 1 FROM journal x WHERE x.partition = t.partition AND x.number = t.number)
    ) b
) s;
