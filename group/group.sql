-- What consumer groups (package group) have read. It belongs beside the tables that their handlers write.
-- A group's user needs SELECT, INSERT and UPDATE, and DELETE for group.Forget.
CREATE TABLE IF NOT EXISTS duly_group (
    name       TEXT PRIMARY KEY,
    stream     TEXT NOT NULL,
    identity   TEXT NOT NULL,                      -- of the stream: when it was made
    partitions INT8 NOT NULL,
    rule       TEXT NOT NULL                       -- which messages belong to which partition
);
CREATE TABLE IF NOT EXISTS duly_group_partition (
    name       TEXT NOT NULL,
    partition  INT8 NOT NULL,
    epoch      INT8 NOT NULL DEFAULT 0,            -- raised by each owner; a commit under a lower one fails
    owner      TEXT NOT NULL DEFAULT '',           -- empty: released
    cursor     INT8 NOT NULL,                      -- the stream's sequence up to which all is handled
    stored     INT8 NOT NULL DEFAULT 0,            -- when the stream got that message, ns since 1970; 0: not known
    stopped    TEXT NOT NULL DEFAULT '',           -- why, until group.Resume; empty: it is not
    PRIMARY KEY (name, partition)
);
CREATE TABLE IF NOT EXISTS duly_group_incident (
    name       TEXT NOT NULL,
    partition  INT8 NOT NULL,
    epoch      INT8 NOT NULL,
    kind       TEXT NOT NULL,                      -- skipped, stopped, gap
    first      INT8 NOT NULL,                      -- sequences of the stream
    last       INT8 NOT NULL,
    reason     TEXT NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (name, partition, first, kind, epoch)
);
