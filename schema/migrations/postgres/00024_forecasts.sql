-- +goose Up
-- How long steps take, as each node has seen it: a step of a plan version, or with an empty type an agent. Small, written
-- about once a minute; rows that are not written any more are forgotten after a week.
CREATE TABLE IF NOT EXISTS forecasts (
    node    TEXT        NOT NULL,
    type    TEXT        NOT NULL,
    version INT8        NOT NULL,
    step    TEXT        NOT NULL,
    at      TIMESTAMPTZ NOT NULL,
    data    BYTEA       NOT NULL,
    PRIMARY KEY (node, type, version, step)
);
