-- What became of the keys of an agent (package pgledger). It belongs beside the tables that the agent's steps write.
-- The agent's user needs SELECT, INSERT and UPDATE, and DELETE for Ledger.Forget.
CREATE TABLE IF NOT EXISTS duly_ledger (
    key     TEXT PRIMARY KEY,                      -- <task>/<step>/<round>
    state   TEXT NOT NULL,                         -- done, undoing, undone; working only within a transaction
    result  BYTEA,                                 -- of a do that has committed, until it is undone
    touched TIMESTAMPTZ NOT NULL DEFAULT now()     -- of the last change: what is older is forgotten
);
CREATE INDEX IF NOT EXISTS duly_ledger_touched ON duly_ledger (touched);
