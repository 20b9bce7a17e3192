-- +goose Up
-- The sessions of people, for all nodes. An id is a hash: who reads the table can be in none of them.
CREATE TABLE IF NOT EXISTS sessions (
    id         TEXT        NOT NULL PRIMARY KEY,
    data       BYTEA       NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_ends ON sessions (expires_at, id);
