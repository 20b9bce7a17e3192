-- +goose NO TRANSACTION
-- +goose Up
-- What groups failures: the step that failed, as plan_steps counts, and a hash of it and of the text without what varies.
-- Written when a task's row says that it is in error or undone; NULL in all others, and in those that failed before this.
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS failed_step INT8;
ALTER TABLE tasks ADD COLUMN IF NOT EXISTS fingerprint TEXT;
-- One action over many tasks. The state is 'freezing' until all its members are there, and 'dropping' while they go.
CREATE TABLE IF NOT EXISTS operations (
    id            TEXT        NOT NULL PRIMARY KEY,
    state         TEXT        NOT NULL,
    why           TEXT        NOT NULL,
    action        TEXT        NOT NULL,
    selection     TEXT        NOT NULL,
    failure_group TEXT        NOT NULL,
    request       BYTEA       NOT NULL,
    rehearsal     BYTEA,
    tasks         INT8        NOT NULL,
    waiting       INT8        NOT NULL,
    asked         INT8        NOT NULL,
    done          INT8        NOT NULL,
    failed_again  INT8        NOT NULL,
    skipped       INT8        NOT NULL,
    wave          INT8        NOT NULL,
    rate          INT8        NOT NULL,
    brake         INT8        NOT NULL,
    by_name       TEXT        NOT NULL,
    reason        TEXT        NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    started_at    TIMESTAMPTZ,
    ended_at      TIMESTAMPTZ,
    expires_at    TIMESTAMPTZ NOT NULL,
    epoch         INT8        NOT NULL
);
CREATE INDEX IF NOT EXISTS operations_newest ON operations (created_at, id);
CREATE TABLE IF NOT EXISTS operation_members (
    operation   TEXT NOT NULL,
    ordinal     INT8 NOT NULL,
    partition   INT8 NOT NULL,
    number      INT8 NOT NULL,
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    seq         INT8 NOT NULL,
    step        TEXT NOT NULL,
    wave        INT8 NOT NULL,
    outcome     TEXT NOT NULL,
    words       TEXT,
    fingerprint TEXT,
    PRIMARY KEY (operation, ordinal)
);
CREATE INDEX IF NOT EXISTS operation_members_outcome ON operation_members (operation, outcome, ordinal);
CREATE UNIQUE INDEX IF NOT EXISTS operation_members_task ON operation_members (operation, partition, number);
-- The last number of each table that counts in the order of its commits.
CREATE TABLE IF NOT EXISTS numbers (
    name TEXT NOT NULL PRIMARY KEY,
    last INT8 NOT NULL
);
-- What operators did. Rows are added, and what became of one is added to it once; targets are bytes, so that a prefix
-- is a range whatever the collation.
CREATE TABLE IF NOT EXISTS audit (
    number      INT8        NOT NULL PRIMARY KEY,
    at          TIMESTAMPTZ NOT NULL,
    actor       TEXT        NOT NULL,
    role        TEXT        NOT NULL,
    from_addr   TEXT        NOT NULL,
    via         TEXT        NOT NULL,
    action      TEXT        NOT NULL,
    target      BYTEA       NOT NULL,
    reason      TEXT        NOT NULL,
    was         BYTEA,
    is_now      BYTEA,
    outcome     TEXT        NOT NULL,
    became      TEXT,
    request_key TEXT,
    request_id  TEXT        NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS audit_key ON audit (request_key);
CREATE INDEX IF NOT EXISTS audit_at ON audit (at, number);
CREATE INDEX IF NOT EXISTS audit_actor ON audit (actor, number);
CREATE INDEX IF NOT EXISTS audit_action ON audit (action, number);
CREATE INDEX IF NOT EXISTS audit_target ON audit (target, number);
CREATE TABLE IF NOT EXISTS notes (
    target  TEXT        NOT NULL,
    number  INT8        NOT NULL,
    at      TIMESTAMPTZ NOT NULL,
    by_name TEXT        NOT NULL,
    words   TEXT        NOT NULL,
    PRIMARY KEY (target, number)
);
CREATE TABLE IF NOT EXISTS tokens (
    id         TEXT        NOT NULL PRIMARY KEY,
    name       TEXT        NOT NULL,
    role       TEXT        NOT NULL,
    hash       BYTEA       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    by_name    TEXT        NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    used_at    TIMESTAMPTZ
);
CREATE TABLE IF NOT EXISTS settings (
    name     TEXT  NOT NULL PRIMARY KEY,
    document BYTEA NOT NULL
);
CREATE TABLE IF NOT EXISTS pauses (
    id       TEXT        NOT NULL PRIMARY KEY,
    type     TEXT        NOT NULL,
    step     TEXT        NOT NULL,
    agent    TEXT        NOT NULL,
    label    TEXT        NOT NULL,
    until_at TIMESTAMPTZ,
    at       TIMESTAMPTZ NOT NULL,
    by_name  TEXT        NOT NULL,
    reason   TEXT        NOT NULL
);
