-- +goose Up
-- How long steps take, as the node has seen it: a step of a plan version, or with an empty type an agent.
CREATE TABLE forecasts (
    node    TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    step    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (node, type, version, step)
) WITHOUT ROWID;
