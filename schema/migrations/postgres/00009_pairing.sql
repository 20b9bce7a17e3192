-- +goose NO TRANSACTION
-- +goose Up
-- Which NATS this database is used with, by which node last, and its last beat: a random
-- word that a live node writes here and there every few seconds. So a second NATS with
-- one database, or a second database with one NATS, is found.
ALTER TABLE installation ADD COLUMN IF NOT EXISTS nats TEXT NOT NULL DEFAULT '';
ALTER TABLE installation ADD COLUMN IF NOT EXISTS used_by TEXT NOT NULL DEFAULT '';
ALTER TABLE installation ADD COLUMN IF NOT EXISTS beat TEXT NOT NULL DEFAULT '';
