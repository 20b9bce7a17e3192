#!/usr/bin/env bash
# Makes the tables: the effects, and of each key its result, or nothing where it was undone.
set -euo pipefail
sqlite3 -bail -cmd '.timeout 10000' "$1" '
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS ledger (key TEXT PRIMARY KEY, result TEXT);' >/dev/null
