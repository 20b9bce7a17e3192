-- +goose Up
-- A version of a plan that new submissions take no more, unless they name it; NULL: they may.
ALTER TABLE plans ADD COLUMN deprecated_at INTEGER;
