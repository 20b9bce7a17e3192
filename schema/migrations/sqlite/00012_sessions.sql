-- +goose Up
-- The sessions of people. An id is a hash: who reads the table can be in none of them.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    data       BLOB    NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_ends ON sessions (expires_at, id);
