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
