-- +goose NO TRANSACTION
-- +goose Up
-- The proof of the journal: a link for each commit that wrote a task of the partition, where a chain is kept. The content
-- names the rows with their digests; the hash covers it and the hash before.
CREATE TABLE IF NOT EXISTS chain (
    partition INT8  NOT NULL,
    height    INT8  NOT NULL,
    epoch     INT8  NOT NULL,
    commit_id INT8  NOT NULL,
    linked_at TIMESTAMPTZ,
    kind      INT2  NOT NULL,
    content   BYTEA NOT NULL,
    hash      BYTEA NOT NULL,
    PRIMARY KEY (partition, height)
);
-- The epoch whose owner keeps the chain: one of a version before, or that keeps none, leaves it as it is.
ALTER TABLE partitions ADD COLUMN IF NOT EXISTS chain_epoch INT8 NOT NULL DEFAULT 0;
