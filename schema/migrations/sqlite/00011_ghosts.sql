-- +goose Up
-- What does not agree between journal and services, as the newest comparison found it, and what operators accepted.
CREATE TABLE ghosts (
    agent      TEXT    NOT NULL,
    effect     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    type       TEXT    NOT NULL,
    step       TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    times      INTEGER NOT NULL,
    made_at    INTEGER,
    words      TEXT    NOT NULL,
    found_at   INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    undoable   INTEGER NOT NULL,
    again      INTEGER NOT NULL,
    repair     TEXT    NOT NULL,
    by_name    TEXT    NOT NULL,
    decided_at INTEGER,
    reason     TEXT    NOT NULL,
    audit      INTEGER NOT NULL,
    PRIMARY KEY (agent, effect)
) WITHOUT ROWID;
