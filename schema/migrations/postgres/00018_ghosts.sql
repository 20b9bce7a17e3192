-- +goose NO TRANSACTION
-- +goose Up
-- What does not agree between journal and services, as the newest comparison found it, and what operators accepted.
CREATE TABLE IF NOT EXISTS ghosts (
    agent      TEXT        NOT NULL,
    effect     TEXT        NOT NULL,
    kind       TEXT        NOT NULL,
    task       TEXT        NOT NULL,
    type       TEXT        NOT NULL,
    step       TEXT        NOT NULL,
    state      TEXT        NOT NULL,
    seq        INT8        NOT NULL,
    times      INT8        NOT NULL,
    made_at    TIMESTAMPTZ,
    words      TEXT        NOT NULL,
    found_at   TIMESTAMPTZ NOT NULL,
    status     TEXT        NOT NULL,
    undoable   INT8        NOT NULL,
    again      INT8        NOT NULL,
    repair     TEXT        NOT NULL,
    by_name    TEXT        NOT NULL,
    decided_at TIMESTAMPTZ,
    reason     TEXT        NOT NULL,
    audit      INT8        NOT NULL,
    PRIMARY KEY (agent, effect)
);
