-- +goose Up
CREATE TABLE plans (
    name       TEXT        NOT NULL,
    version    INTEGER        NOT NULL,
    spec       BLOB       NOT NULL,
    created_at INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, version)
);
CREATE TABLE plan_steps (
    plan          TEXT NOT NULL,
    version       INTEGER NOT NULL,
    ordinal       INTEGER NOT NULL,
    name          TEXT NOT NULL,
    agent         TEXT NOT NULL,
    undoable      INTEGER NOT NULL,
    after_steps   TEXT NOT NULL,
    complete_by_ms INTEGER NOT NULL,
    attempts_max  INTEGER NOT NULL,
    on_exhausted  TEXT NOT NULL,
    PRIMARY KEY (plan, version, ordinal)
);
CREATE TABLE partitions (
    partition      INTEGER NOT NULL PRIMARY KEY,
    owner          TEXT NOT NULL DEFAULT '',
    epoch          INTEGER NOT NULL DEFAULT 0,
    cursor         INTEGER NOT NULL DEFAULT 0,
    control_cursor INTEGER NOT NULL DEFAULT 0,
    next_number    INTEGER NOT NULL DEFAULT 1,
    next_end       INTEGER NOT NULL DEFAULT 1,
    told           INTEGER NOT NULL DEFAULT 0,
    stream         TEXT NOT NULL DEFAULT ''
);
CREATE TABLE tasks (
    partition     INTEGER        NOT NULL,
    number        INTEGER        NOT NULL,
    id            TEXT        NOT NULL CHECK (instr(id, char(0)) = 0),
    type          TEXT        NOT NULL CHECK (instr(type, char(0)) = 0),
    plan_version  INTEGER        NOT NULL,
    input         BLOB,
    input_hash    BLOB,
    state         TEXT        NOT NULL,
    seq           INTEGER        NOT NULL,
    round         INTEGER        NOT NULL,
    locked_by     TEXT,
    waits_for     TEXT,
    complete_by   INTEGER,
    deadline      INTEGER,
    failure_count INTEGER        NOT NULL,
    reply_to      TEXT CHECK (instr(reply_to, char(0)) = 0),
    trace         TEXT CHECK (instr(trace, char(0)) = 0),
    origin        INTEGER        NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    end_number    INTEGER,
    purged        INTEGER        NOT NULL DEFAULT 0,
    commit_id     INTEGER        NOT NULL,
    PRIMARY KEY (partition, number)
);
CREATE UNIQUE INDEX tasks_id ON tasks (partition, id);
CREATE INDEX tasks_due ON tasks (partition, complete_by, number) WHERE state IN ('pending', 'processing', 'undoing');
CREATE INDEX tasks_waiting ON tasks (partition, waits_for, number) WHERE waits_for IS NOT NULL;
CREATE UNIQUE INDEX tasks_ended ON tasks (partition, end_number) WHERE end_number IS NOT NULL;
-- With rowids: rows of many tasks are appended, and only the index of their keys
-- is written in as many places as there are tasks.
CREATE TABLE journal (
    partition    INTEGER        NOT NULL,
    number       INTEGER        NOT NULL,
    seq          INTEGER        NOT NULL,
    at           INTEGER NOT NULL,
    actor        TEXT        NOT NULL,
    commit_id    INTEGER        NOT NULL,
    format       INTEGER        NOT NULL,
    kind         TEXT        NOT NULL,
    state        TEXT        NOT NULL,
    round        INTEGER        NOT NULL,
    step         INTEGER,
    step_status  TEXT,
    attempt      INTEGER        NOT NULL,
    code         INTEGER,
    error        BLOB,
    fingerprint  TEXT,
    reason       BLOB,
    result       BLOB,
    quiet        INTEGER,
    next         INTEGER,
    next_attempt INTEGER,
    undo         INTEGER        NOT NULL,
    due          INTEGER,
    deadline     INTEGER,
    PRIMARY KEY (partition, number, seq)
);
CREATE VIEW steps AS
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
LEFT JOIN journal j ON j.partition = t.partition AND j.number = t.number AND j.seq = (
    SELECT max(x.seq) FROM journal x
    WHERE x.partition = t.partition AND x.number = t.number AND x.round = t.round
      AND (x.step = ps.ordinal OR x.next = ps.ordinal))
WHERE NOT t.purged;
