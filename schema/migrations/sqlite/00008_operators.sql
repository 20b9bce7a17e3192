-- +goose Up
-- What groups failures: the step that failed, as plan_steps counts, and a hash of it and of the text without what varies.
-- Written when a task's row says that it is in error or undone; NULL in all others, and in those that failed before this.
ALTER TABLE tasks ADD COLUMN failed_step INTEGER;
ALTER TABLE tasks ADD COLUMN fingerprint TEXT;
-- One action over many tasks. The state is 'freezing' until all its members are there, and 'dropping' while they go.
CREATE TABLE operations (
    id            TEXT    NOT NULL PRIMARY KEY,
    state         TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    action        TEXT    NOT NULL,
    selection     TEXT    NOT NULL,
    failure_group TEXT    NOT NULL,
    request       BLOB    NOT NULL,
    rehearsal     BLOB,
    tasks         INTEGER NOT NULL,
    waiting       INTEGER NOT NULL,
    asked         INTEGER NOT NULL,
    done          INTEGER NOT NULL,
    failed_again  INTEGER NOT NULL,
    skipped       INTEGER NOT NULL,
    wave          INTEGER NOT NULL,
    rate          INTEGER NOT NULL,
    brake         INTEGER NOT NULL,
    by_name       TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    expires_at    INTEGER NOT NULL,
    epoch         INTEGER NOT NULL
);
CREATE INDEX operations_newest ON operations (created_at, id);
CREATE TABLE operation_members (
    operation   TEXT    NOT NULL,
    ordinal     INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    step        TEXT    NOT NULL,
    wave        INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    words       TEXT,
    fingerprint TEXT,
    PRIMARY KEY (operation, ordinal)
);
CREATE INDEX operation_members_outcome ON operation_members (operation, outcome, ordinal);
CREATE UNIQUE INDEX operation_members_task ON operation_members (operation, partition, number);
-- The last number of each table that counts in the order of its commits.
CREATE TABLE numbers (
    name TEXT    NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
);
-- What operators did. Rows are added, and what became of one is added to it once; targets are bytes, so that a prefix
-- is a range whatever the collation.
CREATE TABLE audit (
    number      INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    from_addr   TEXT    NOT NULL,
    via         TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    target      BLOB    NOT NULL,
    reason      TEXT    NOT NULL,
    was         BLOB,
    is_now      BLOB,
    outcome     TEXT    NOT NULL,
    became      TEXT,
    request_key TEXT,
    request_id  TEXT    NOT NULL
);
CREATE UNIQUE INDEX audit_key ON audit (request_key);
CREATE INDEX audit_at ON audit (at, number);
CREATE INDEX audit_actor ON audit (actor, number);
CREATE INDEX audit_action ON audit (action, number);
CREATE INDEX audit_target ON audit (target, number);
CREATE TABLE notes (
    target  TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    by_name TEXT    NOT NULL,
    words   TEXT    NOT NULL,
    PRIMARY KEY (target, number)
);
CREATE TABLE tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    by_name    TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER
);
CREATE TABLE settings (
    name     TEXT    NOT NULL PRIMARY KEY,
    document BLOB    NOT NULL
);
CREATE TABLE pauses (
    id       TEXT    NOT NULL PRIMARY KEY,
    type     TEXT    NOT NULL,
    step     TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    label    TEXT    NOT NULL,
    until_at INTEGER,
    at       INTEGER NOT NULL,
    by_name  TEXT    NOT NULL,
    reason   TEXT    NOT NULL
);
-- Of tasks in error or undone: see the migration of PostgreSQL that builds the same indexes.
CREATE INDEX tasks_by_state ON tasks (partition, state, number, type) WHERE state IN ('undone', 'error');
CREATE INDEX tasks_groups ON tasks (state, type, fingerprint, partition, number) WHERE state IN ('undone', 'error');
CREATE INDEX tasks_group_ends ON tasks (state, type, fingerprint, ended_at) WHERE state IN ('undone', 'error');
DROP INDEX tasks_failed;
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('tasks', 'tasks_by_state', '100000 6000 3000 1 1'),
    ('tasks', 'tasks_groups', '100000 50000 25000 2000 125 1'),
    ('tasks', 'tasks_group_ends', '100000 50000 25000 2000 1'),
    ('operation_members', 'sqlite_autoindex_operation_members_1', '1000000 10000 1'),
    ('operation_members', 'operation_members_outcome', '1000000 10000 2000 1'),
    ('operation_members', 'operation_members_task', '1000000 10000 600 1'),
    ('audit', 'audit_at', '1000000 10 1'),
    ('audit', 'audit_actor', '1000000 10000 1'),
    ('audit', 'audit_action', '1000000 50000 1'),
    ('audit', 'audit_target', '1000000 10 1');
ANALYZE sqlite_schema;
