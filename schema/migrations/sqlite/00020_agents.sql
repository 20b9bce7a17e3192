-- +goose Up
-- Breakers of agents: one row for each agent whose breaker has ever opened, or that an operator has opened or closed.
CREATE TABLE breakers (
    agent    TEXT    NOT NULL PRIMARY KEY,
    state    TEXT    NOT NULL,
    since    INTEGER NOT NULL,
    until_at INTEGER,
    openings INTEGER NOT NULL,
    stage    INTEGER NOT NULL,
    forced   INTEGER NOT NULL,
    by_name  TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    revision INTEGER NOT NULL
);
-- What each node has counted lately of the calls of an agent that fail; written while they do.
CREATE TABLE breaker_calls (
    agent    TEXT    NOT NULL,
    node     TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    done     INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    PRIMARY KEY (agent, node)
) WITHOUT ROWID;
-- Limits of agents over all nodes, and what each committer of a node may use of them. claims rises with each claim: its row
-- is what they lock.
CREATE TABLE limits (
    agent      TEXT    NOT NULL PRIMARY KEY,
    concurrent INTEGER NOT NULL,
    rate_milli INTEGER NOT NULL,
    revision   INTEGER NOT NULL,
    claims     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    by_name    TEXT    NOT NULL,
    reason     TEXT    NOT NULL
);
CREATE TABLE limit_grants (
    agent      TEXT    NOT NULL,
    holder     TEXT    NOT NULL,
    wanted     INTEGER NOT NULL,
    places     INTEGER NOT NULL,
    rate_milli INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (agent, holder)
) WITHOUT ROWID;
