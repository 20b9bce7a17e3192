-- +goose NO TRANSACTION
-- +goose Up
-- Limits of agents for each key of a task: what makes the key, and what bounds each.
ALTER TABLE limits ADD COLUMN IF NOT EXISTS key_expr TEXT NOT NULL DEFAULT '';
ALTER TABLE limits ADD COLUMN IF NOT EXISTS key_concurrent INT8 NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN IF NOT EXISTS key_rate_milli INT8 NOT NULL DEFAULT 0;
-- What each committer of a node may use of a key. What is neither used nor wanted has no row. limit_grants stays as it is for
-- nodes of before.
CREATE TABLE IF NOT EXISTS key_grants (
    agent      TEXT        NOT NULL,
    key        TEXT        NOT NULL,
    holder     TEXT        NOT NULL,
    wanted     INT8        NOT NULL,
    places     INT8        NOT NULL,
    rate_milli INT8        NOT NULL,
    until_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (agent, key, holder)
);
-- Those that have ended.
CREATE INDEX IF NOT EXISTS key_grants_until ON key_grants (agent, until_at);
