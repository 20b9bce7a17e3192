-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS plans (
    name       TEXT        NOT NULL,
    version    INT8        NOT NULL,
    spec       BYTEA       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);
CREATE TABLE IF NOT EXISTS plan_steps (
    plan          TEXT NOT NULL,
    version       INT8 NOT NULL,
    ordinal       INT8 NOT NULL,
    name          TEXT NOT NULL,
    agent         TEXT NOT NULL,
    undoable      BOOL NOT NULL,
    after_steps   TEXT NOT NULL,
    complete_by_ms INT8 NOT NULL,
    attempts_max  INT8 NOT NULL,
    on_exhausted  TEXT NOT NULL,
    PRIMARY KEY (plan, version, ordinal)
);
CREATE TABLE IF NOT EXISTS partitions (
    partition      INT8 NOT NULL PRIMARY KEY,
    owner          TEXT NOT NULL DEFAULT '',
    epoch          INT8 NOT NULL DEFAULT 0,
    cursor         INT8 NOT NULL DEFAULT 0,
    control_cursor INT8 NOT NULL DEFAULT 0,
    next_number    INT8 NOT NULL DEFAULT 1,
    next_end       INT8 NOT NULL DEFAULT 1,
    told           INT8 NOT NULL DEFAULT 0,
    stream         TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS tasks (
    partition     INT8        NOT NULL,
    number        INT8        NOT NULL,
    id            TEXT        NOT NULL,
    type          TEXT        NOT NULL,
    plan_version  INT8        NOT NULL,
    input         BYTEA,
    input_hash    BYTEA,
    state         TEXT        NOT NULL,
    seq           INT8        NOT NULL,
    round         INT8        NOT NULL,
    locked_by     TEXT,
    waits_for     TEXT,
    complete_by   TIMESTAMPTZ,
    deadline      TIMESTAMPTZ,
    failure_count INT8        NOT NULL,
    reply_to      TEXT,
    trace         TEXT,
    origin        INT8        NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    ended_at      TIMESTAMPTZ,
    end_number    INT8,
    purged        BOOL        NOT NULL DEFAULT FALSE,
    commit_id     INT8        NOT NULL,
    PRIMARY KEY (partition, number)
);
-- The id leads: an index that begins with the partition ties with the primary key
-- while the table has no statistics, and a plan made then reads a whole partition
-- for every row that a commit updates.
CREATE UNIQUE INDEX IF NOT EXISTS tasks_id ON tasks (id, partition);
CREATE INDEX IF NOT EXISTS tasks_due ON tasks (partition, complete_by, number) WHERE state IN ('pending', 'processing', 'undoing');
CREATE INDEX IF NOT EXISTS tasks_waiting ON tasks (partition, waits_for, number) WHERE waits_for IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS tasks_ended ON tasks (partition, end_number) WHERE end_number IS NOT NULL;
CREATE TABLE IF NOT EXISTS journal (
    partition    INT8        NOT NULL,
    number       INT8        NOT NULL,
    seq          INT8        NOT NULL,
    at           TIMESTAMPTZ NOT NULL,
    actor        TEXT        NOT NULL,
    commit_id    INT8        NOT NULL,
    format       INT2        NOT NULL,
    kind         TEXT        NOT NULL,
    state        TEXT        NOT NULL,
    round        INT8        NOT NULL,
    step         INT8,
    step_status  TEXT,
    attempt      INT8        NOT NULL,
    code         INT8,
    error        BYTEA,
    fingerprint  TEXT,
    reason       BYTEA,
    result       BYTEA,
    quiet        TIMESTAMPTZ,
    next         INT8,
    next_attempt INT8,
    undo         BOOL        NOT NULL,
    due          TIMESTAMPTZ,
    deadline     TIMESTAMPTZ,
    PRIMARY KEY (partition, number, seq)
);
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
WHERE NOT t.purged;
