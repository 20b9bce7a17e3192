-- +goose Up
-- Breakers of agents: one row for each agent whose breaker has ever opened, or that an operator has opened or closed.
CREATE TABLE IF NOT EXISTS breakers (
    agent    TEXT        NOT NULL PRIMARY KEY,
    state    TEXT        NOT NULL,
    since    TIMESTAMPTZ NOT NULL,
    until_at TIMESTAMPTZ,
    openings INT8        NOT NULL,
    stage    INT8        NOT NULL,
    forced   BOOL        NOT NULL,
    by_name  TEXT        NOT NULL,
    reason   TEXT        NOT NULL,
    revision INT8        NOT NULL
);
-- What each node has counted lately of the calls of an agent that fail; written while they do.
CREATE TABLE IF NOT EXISTS breaker_calls (
    agent    TEXT        NOT NULL,
    node     TEXT        NOT NULL,
    revision INT8        NOT NULL,
    at       TIMESTAMPTZ NOT NULL,
    done     INT8        NOT NULL,
    failed   INT8        NOT NULL,
    PRIMARY KEY (agent, node)
);
-- Limits of agents over all nodes, and what each committer of a node may use of them. claims rises with each claim: its row
-- is what they lock.
CREATE TABLE IF NOT EXISTS limits (
    agent      TEXT        NOT NULL PRIMARY KEY,
    concurrent INT8        NOT NULL,
    rate_milli INT8        NOT NULL,
    revision   INT8        NOT NULL,
    claims     INT8        NOT NULL,
    at         TIMESTAMPTZ NOT NULL,
    by_name    TEXT        NOT NULL,
    reason     TEXT        NOT NULL
);
CREATE TABLE IF NOT EXISTS limit_grants (
    agent      TEXT        NOT NULL,
    holder     TEXT        NOT NULL,
    wanted     INT8        NOT NULL,
    places     INT8        NOT NULL,
    rate_milli INT8        NOT NULL,
    until_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (agent, holder)
);
