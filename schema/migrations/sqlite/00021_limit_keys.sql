-- +goose Up
-- Limits of agents for each key of a task: what makes the key, and what bounds each.
ALTER TABLE limits ADD COLUMN key_expr TEXT NOT NULL DEFAULT '';
ALTER TABLE limits ADD COLUMN key_concurrent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE limits ADD COLUMN key_rate_milli INTEGER NOT NULL DEFAULT 0;
-- What each committer of a node may use of a key. What is neither used nor wanted has no row.
CREATE TABLE key_grants (
    agent      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    holder     TEXT    NOT NULL,
    wanted     INTEGER NOT NULL,
    places     INTEGER NOT NULL,
    rate_milli INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (agent, key, holder)
) WITHOUT ROWID;
-- Those that have ended.
CREATE INDEX key_grants_until ON key_grants (agent, until_at);
