-- +goose NO TRANSACTION
-- +goose Up

-- The versions of each plan: spec is its canonical form. A deprecated one takes new submissions only by name.
CREATE TABLE IF NOT EXISTS plans (
    name          TEXT        NOT NULL,
    version       INT8        NOT NULL,
    spec          BYTEA       NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    deprecated_at TIMESTAMPTZ,
    PRIMARY KEY (name, version)
);

-- The steps of a plan version as columns, for the view steps and for people. ordinal counts from 0.
CREATE TABLE IF NOT EXISTS plan_steps (
    plan           TEXT NOT NULL,
    version        INT8 NOT NULL,
    ordinal        INT8 NOT NULL,
    name           TEXT NOT NULL,
    kind           TEXT NOT NULL DEFAULT 'call',
    agent          TEXT NOT NULL,
    undoable       BOOL NOT NULL,
    after_steps    TEXT NOT NULL,
    complete_by_ms INT8 NOT NULL,
    attempts_max   INT8 NOT NULL,
    on_exhausted   TEXT NOT NULL,
    PRIMARY KEY (plan, version, ordinal)
);

-- One row a partition: who owns it, and how far it has come. Each commit updates it; that is the fence.
CREATE TABLE IF NOT EXISTS partitions (
    partition        INT8 NOT NULL PRIMARY KEY,
    -- epoch rises with each takeover; last_commit is the id of the last commit, or of the takeover. A copy of the database
    -- that is a second behind, or restored, has another one.
    owner            TEXT NOT NULL DEFAULT '',
    epoch            INT8 NOT NULL DEFAULT 0,
    last_commit      INT8 NOT NULL DEFAULT 0,
    -- Positions in the task and the control stream, the identities of the two, and when they took the messages at the
    -- cursors: a stream that was restored, and has grown past a cursor since, has another message there.
    stream           TEXT NOT NULL DEFAULT '',
    cursor           INT8 NOT NULL DEFAULT 0,
    control_cursor   INT8 NOT NULL DEFAULT 0,
    cursor_stored    TIMESTAMPTZ,
    control_stored   TIMESTAMPTZ,
    -- The next task and the next ending; the endings up to told are published, those up to forgotten have no journal.
    next_number      INT8 NOT NULL DEFAULT 1,
    next_end         INT8 NOT NULL DEFAULT 1,
    told             INT8 NOT NULL DEFAULT 0,
    forgotten        INT8 NOT NULL DEFAULT 0,
    -- When a takeover last found that the database had gone back; tasks below which number, and submissions up to which
    -- position of the task stream, may have run before.
    went_back_at     TIMESTAMPTZ,
    went_back_number INT8 NOT NULL DEFAULT 0,
    went_back_until  INT8 NOT NULL DEFAULT 0,
    -- The epoch whose owner keeps the chain; one that keeps none leaves it as it is.
    chain_epoch      INT8 NOT NULL DEFAULT 0
);
-- CockroachDB keeps old versions of a row for hours, and passes over them at each read.
/* CockroachDB */ ALTER TABLE partitions CONFIGURE ZONE USING gc.ttlseconds = 600;

-- Every task, as far as its owner has written it: what a task was made of, and each event since, is in the journal.
CREATE TABLE IF NOT EXISTS tasks (
    partition     INT8        NOT NULL,
    number        INT8        NOT NULL,
    id            TEXT        NOT NULL,
    type          TEXT        NOT NULL,
    plan_version  INT8        NOT NULL,
    labels        TEXT,
    input_hash    BYTEA,
    -- Where the submission was in the task stream, who hears of the end, and its trace.
    origin        INT8        NOT NULL,
    reply_to      TEXT,
    trace         TEXT,
    -- Of a child: the number of its parent, the step of it, and which of the step's children it is.
    parent        INT8,
    parent_step   INT8,
    child_index   INT8,
    -- When a task that starts later does.
    start_at      TIMESTAMPTZ,
    -- As of the last journal row that the task's row tells of; round counts how often the task has begun again.
    state         TEXT        NOT NULL,
    seq           INT8        NOT NULL,
    round         INT8        NOT NULL,
    commit_id     INT8        NOT NULL,
    locked_by     TEXT,
    waits_for     TEXT,
    -- A lower bound of the instant that the supervisor asks at; the task's own deadline.
    complete_by   TIMESTAMPTZ,
    deadline      TIMESTAMPTZ,
    -- The signal steps that wait for their answers: bit i is step i; since when the first of them, and until when the first.
    signal_steps  BYTEA,
    signal_since  TIMESTAMPTZ,
    signal_due    TIMESTAMPTZ,
    failure_count INT8        NOT NULL,
    -- What groups failures, of tasks in error or undone: the step that failed, as plan_steps counts, and a hash of it and of
    -- the text without what varies.
    failed_step   INT8,
    fingerprint   TEXT,
    created_at    TIMESTAMPTZ NOT NULL,
    updated_at    TIMESTAMPTZ NOT NULL,
    ended_at      TIMESTAMPTZ,
    end_number    INT8,
    PRIMARY KEY (partition, number)
);
-- The id leads: an index that begins with the partition ties with the primary key while the table has no statistics, and a
-- plan made then reads a whole partition for every row that a commit updates.
CREATE UNIQUE INDEX IF NOT EXISTS tasks_id ON tasks (id, partition);
-- What is due, in two: a takeover loads the tasks in hand, and must not walk the parked ones, of which there may be many. A
-- row is in one of them at most, and in none when its task has ended.
CREATE INDEX IF NOT EXISTS tasks_active ON tasks (partition, complete_by, number) WHERE state IN ('processing', 'undoing');
CREATE INDEX IF NOT EXISTS tasks_parked ON tasks (partition, complete_by, number) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS tasks_waiting ON tasks (partition, waits_for, number) WHERE waits_for IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS tasks_ended ON tasks (partition, end_number) WHERE end_number IS NOT NULL;
-- The children of a step, in the order in which they were born: that of their numbers.
CREATE INDEX IF NOT EXISTS tasks_children ON tasks (partition, parent, parent_step, number) WHERE parent IS NOT NULL;
-- The rest is for people. The list of the tasks of a state goes by number, as all lists do; a task that ends well is in none.
CREATE INDEX IF NOT EXISTS tasks_pending ON tasks (partition, number) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS tasks_by_state ON tasks (partition, state, number, type) WHERE state IN ('undone', 'error');
-- The failure groups, one after the other, each with its tasks; and the oldest and newest of a group by the time of its end.
CREATE INDEX IF NOT EXISTS tasks_groups ON tasks (state, type, fingerprint, partition, number) WHERE state IN ('undone', 'error');
CREATE INDEX IF NOT EXISTS tasks_group_ends ON tasks (state, type, fingerprint, ended_at) WHERE state IN ('undone', 'error');
-- Open signals: their list, the oldest, and the most urgent.
CREATE INDEX IF NOT EXISTS tasks_signals ON tasks (partition, number) WHERE signal_steps IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_signal_since ON tasks (signal_since) WHERE signal_steps IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_signal_due ON tasks (signal_due, signal_steps) WHERE signal_steps IS NOT NULL;

-- One row an event of a task. The first has the task's input; what is forgotten of a task is these rows.
CREATE TABLE IF NOT EXISTS journal (
    partition    INT8        NOT NULL,
    number       INT8        NOT NULL,
    seq          INT8        NOT NULL,
    at           TIMESTAMPTZ NOT NULL,
    actor        TEXT        NOT NULL,
    commit_id    INT8        NOT NULL,
    -- Of this row; one of a later format is not read.
    format       INT2        NOT NULL,
    kind         TEXT        NOT NULL,
    state        TEXT        NOT NULL,
    round        INT8        NOT NULL,
    input        BYTEA,
    -- What became of a step.
    step         INT8,
    step_status  TEXT,
    attempt      INT8        NOT NULL,
    code         INT8,
    error        BYTEA,
    fingerprint  TEXT,
    reason       BYTEA,
    result       BYTEA,
    quiet        TIMESTAMPTZ,
    -- The command that leaves with it.
    next         INT8,
    next_attempt INT8,
    undo         BOOL        NOT NULL,
    due          TIMESTAMPTZ,
    deadline     TIMESTAMPTZ,
    PRIMARY KEY (partition, number, seq)
);
-- As much is deleted of these two as is written. By the default autovacuum would begin when a fifth of a table is dead, and
-- PostgreSQL would take a table that grows for a tenth smaller than it is at most.
/* PostgreSQL */ ALTER TABLE tasks SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
/* PostgreSQL */ ALTER TABLE journal SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 1000);
-- A number is in each partition once. Statistics of a young table say that there are few numbers, and keep saying so while
-- it grows: plans made by them read a whole partition for a few numbers.
/* PostgreSQL */ ALTER TABLE tasks ALTER COLUMN number SET (n_distinct = -0.05);

-- The labels of tasks, one by one, by which tasks are found. A task's own row has them as its submission did.
CREATE TABLE IF NOT EXISTS labels (
    partition INT8 NOT NULL,
    number    INT8 NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (partition, number, key)
);
-- Newest first. By -number, because no other index has that order: a planner would else walk the key of the table in the
-- hope of a match, which may be far.
CREATE INDEX IF NOT EXISTS labels_found ON labels (key, value, partition, (-number));

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

-- Which installation this is; its streams and buckets carry the same id. nats is the NATS that the database is used with,
-- used_by the node that said so last, and beat a random word that a live node writes here and there every few seconds: so a
-- second NATS with one database, or a second database with one NATS, is found.
CREATE TABLE IF NOT EXISTS installation (
    one       INT8 NOT NULL DEFAULT 1 PRIMARY KEY CHECK (one = 1),
    id        TEXT NOT NULL,
    namespace TEXT NOT NULL DEFAULT '',
    nats      TEXT NOT NULL DEFAULT '',
    used_by   TEXT NOT NULL DEFAULT '',
    beat      TEXT NOT NULL DEFAULT ''
);
INSERT INTO installation (id) SELECT gen_random_uuid()::TEXT ON CONFLICT DO NOTHING;

-- One action over many tasks. The state is 'freezing' until all its members are there, and 'dropping' while they go.
CREATE TABLE IF NOT EXISTS operations (
    id            TEXT        NOT NULL PRIMARY KEY,
    state         TEXT        NOT NULL,
    why           TEXT        NOT NULL,
    action        TEXT        NOT NULL,
    selection     TEXT        NOT NULL,
    failure_group TEXT        NOT NULL,
    request       BYTEA       NOT NULL,
    rehearsal     BYTEA,
    tasks         INT8        NOT NULL,
    waiting       INT8        NOT NULL,
    asked         INT8        NOT NULL,
    done          INT8        NOT NULL,
    failed_again  INT8        NOT NULL,
    skipped       INT8        NOT NULL,
    wave          INT8        NOT NULL,
    rate          INT8        NOT NULL,
    brake         INT8        NOT NULL,
    by_name       TEXT        NOT NULL,
    reason        TEXT        NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    started_at    TIMESTAMPTZ,
    ended_at      TIMESTAMPTZ,
    expires_at    TIMESTAMPTZ NOT NULL,
    epoch         INT8        NOT NULL
);
CREATE INDEX IF NOT EXISTS operations_newest ON operations (created_at, id);

-- The tasks of an operation, as they were when it was frozen, and what became of each.
CREATE TABLE IF NOT EXISTS operation_members (
    operation   TEXT NOT NULL,
    ordinal     INT8 NOT NULL,
    partition   INT8 NOT NULL,
    number      INT8 NOT NULL,
    id          TEXT NOT NULL,
    type        TEXT NOT NULL,
    seq         INT8 NOT NULL,
    step        TEXT NOT NULL,
    wave        INT8 NOT NULL,
    outcome     TEXT NOT NULL,
    words       TEXT,
    fingerprint TEXT,
    PRIMARY KEY (operation, ordinal)
);
CREATE INDEX IF NOT EXISTS operation_members_outcome ON operation_members (operation, outcome, ordinal);
CREATE UNIQUE INDEX IF NOT EXISTS operation_members_task ON operation_members (operation, partition, number);

-- The last number of each table that counts in the order of its commits.
CREATE TABLE IF NOT EXISTS numbers (
    name TEXT NOT NULL PRIMARY KEY,
    last INT8 NOT NULL
);

-- What operators did. Rows are added, and what became of one is added to it once; targets are bytes, so that a prefix is a
-- range whatever the collation.
CREATE TABLE IF NOT EXISTS audit (
    number      INT8        NOT NULL PRIMARY KEY,
    at          TIMESTAMPTZ NOT NULL,
    actor       TEXT        NOT NULL,
    role        TEXT        NOT NULL,
    from_addr   TEXT        NOT NULL,
    via         TEXT        NOT NULL,
    action      TEXT        NOT NULL,
    target      BYTEA       NOT NULL,
    reason      TEXT        NOT NULL,
    was         BYTEA,
    is_now      BYTEA,
    outcome     TEXT        NOT NULL,
    became      TEXT,
    request_key TEXT,
    request_id  TEXT        NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS audit_key ON audit (request_key);
CREATE INDEX IF NOT EXISTS audit_at ON audit (at, number);
CREATE INDEX IF NOT EXISTS audit_actor ON audit (actor, number);
CREATE INDEX IF NOT EXISTS audit_action ON audit (action, number);
CREATE INDEX IF NOT EXISTS audit_target ON audit (target, number);
CREATE INDEX IF NOT EXISTS audit_open ON audit (number) WHERE became IS NULL;

-- What operators wrote down about a task or a failure group.
CREATE TABLE IF NOT EXISTS notes (
    target  TEXT        NOT NULL,
    number  INT8        NOT NULL,
    at      TIMESTAMPTZ NOT NULL,
    by_name TEXT        NOT NULL,
    words   TEXT        NOT NULL,
    PRIMARY KEY (target, number)
);

-- Tokens of programs, as hashes.
CREATE TABLE IF NOT EXISTS tokens (
    id         TEXT        NOT NULL PRIMARY KEY,
    name       TEXT        NOT NULL,
    role       TEXT        NOT NULL,
    hash       BYTEA       NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    by_name    TEXT        NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    used_at    TIMESTAMPTZ,
    labels     TEXT        NOT NULL
);

-- The sessions of people, for all nodes. An id is a hash: who reads the table can be in none of them. Its owner is the id of
-- a token, or a person of an identity provider.
CREATE TABLE IF NOT EXISTS sessions (
    id         TEXT        NOT NULL PRIMARY KEY,
    owner      TEXT        NOT NULL,
    data       BYTEA       NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_ends ON sessions (expires_at, id);
CREATE INDEX IF NOT EXISTS sessions_owners ON sessions (owner);

-- Documents that operators change while nodes run, one for each subject.
CREATE TABLE IF NOT EXISTS settings (
    name     TEXT  NOT NULL PRIMARY KEY,
    document BYTEA NOT NULL
);

-- What operators hold back for now.
CREATE TABLE IF NOT EXISTS pauses (
    id       TEXT        NOT NULL PRIMARY KEY,
    type     TEXT        NOT NULL,
    step     TEXT        NOT NULL,
    agent    TEXT        NOT NULL,
    label    TEXT        NOT NULL,
    until_at TIMESTAMPTZ,
    at       TIMESTAMPTZ NOT NULL,
    by_name  TEXT        NOT NULL,
    reason   TEXT        NOT NULL
);

-- What does not agree between journal and services, as the newest comparison found it, and what operators accepted.
CREATE TABLE IF NOT EXISTS ghosts (
    agent      TEXT        NOT NULL,
    effect     TEXT        NOT NULL,
    kind       TEXT        NOT NULL,
    task       TEXT        NOT NULL,
    type       TEXT        NOT NULL,
    step       TEXT        NOT NULL,
    state      TEXT        NOT NULL,
    seq        INT8        NOT NULL,
    times      INT8        NOT NULL,
    made_at    TIMESTAMPTZ,
    words      TEXT        NOT NULL,
    found_at   TIMESTAMPTZ NOT NULL,
    status     TEXT        NOT NULL,
    undoable   INT8        NOT NULL,
    again      INT8        NOT NULL,
    repair     TEXT        NOT NULL,
    by_name    TEXT        NOT NULL,
    decided_at TIMESTAMPTZ,
    reason     TEXT        NOT NULL,
    audit      INT8        NOT NULL,
    PRIMARY KEY (agent, effect)
);

-- Tasks that are submitted again and again. What an operator wrote is kept as written; from revision on it is what has
-- become of it. A write raises the revision, and is fenced by the one that it has read; due_at is when a look is needed next.
CREATE TABLE IF NOT EXISTS schedules (
    name          TEXT        NOT NULL PRIMARY KEY,
    type          TEXT        NOT NULL,
    input         BYTEA       NOT NULL,
    plan_version  INT8        NOT NULL,
    complete_by   TEXT        NOT NULL,
    labels        TEXT        NOT NULL,
    cron          TEXT        NOT NULL,
    every         TEXT        NOT NULL,
    zone          TEXT        NOT NULL,
    from_at       TIMESTAMPTZ,
    until_at      TIMESTAMPTZ,
    jitter        TEXT        NOT NULL,
    overlap       TEXT        NOT NULL,
    queue         INT8        NOT NULL,
    catch_up      TEXT        NOT NULL,
    catch_ups     INT8        NOT NULL,
    paused        BOOLEAN     NOT NULL,
    revision      INT8        NOT NULL,
    by_name       TEXT        NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL,
    changed_at    TIMESTAMPTZ NOT NULL,
    cursor_at     TIMESTAMPTZ NOT NULL,
    waiting       BYTEA       NOT NULL,
    last_run      TIMESTAMPTZ,
    last_task     TEXT        NOT NULL,
    last_at       TIMESTAMPTZ,
    last_place    BIGINT      NOT NULL,
    outcome       TEXT        NOT NULL,
    why           TEXT        NOT NULL,
    submitted     INT8        NOT NULL,
    skipped       INT8        NOT NULL,
    missed        INT8        NOT NULL,
    failing_since TIMESTAMPTZ,
    failure       TEXT        NOT NULL,
    due_at        TIMESTAMPTZ
);

-- How long steps take, as each node has seen it: a step of a plan version, or with an empty type an agent. Small, written
-- about once a minute; rows that are not written any more are forgotten after a week.
CREATE TABLE IF NOT EXISTS forecasts (
    node    TEXT        NOT NULL,
    type    TEXT        NOT NULL,
    version INT8        NOT NULL,
    step    TEXT        NOT NULL,
    at      TIMESTAMPTZ NOT NULL,
    data    BYTEA       NOT NULL,
    PRIMARY KEY (node, type, version, step)
);

-- Breakers of agents: one row for each agent whose breaker has ever opened, or that an operator has opened or closed.
CREATE TABLE IF NOT EXISTS breakers (
    agent    TEXT        NOT NULL PRIMARY KEY,
    state    TEXT        NOT NULL,
    since    TIMESTAMPTZ NOT NULL,
    until_at TIMESTAMPTZ,
    openings INT8        NOT NULL,
    stage    INT8        NOT NULL,
    forced   BOOL        NOT NULL,
    by_name  TEXT        NOT NULL,
    reason   TEXT        NOT NULL,
    revision INT8        NOT NULL
);

-- What each node has counted lately of the calls of an agent that fail; written while they do.
CREATE TABLE IF NOT EXISTS breaker_calls (
    agent    TEXT        NOT NULL,
    node     TEXT        NOT NULL,
    revision INT8        NOT NULL,
    at       TIMESTAMPTZ NOT NULL,
    done     INT8        NOT NULL,
    failed   INT8        NOT NULL,
    PRIMARY KEY (agent, node)
);

-- Limits of agents over all nodes, and for each key of a task: what makes the key, and what bounds each. claims rises with
-- each claim of a grant: its row is what they lock.
CREATE TABLE IF NOT EXISTS limits (
    agent          TEXT        NOT NULL PRIMARY KEY,
    concurrent     INT8        NOT NULL,
    rate_milli     INT8        NOT NULL,
    key_expr       TEXT        NOT NULL DEFAULT '',
    key_concurrent INT8        NOT NULL DEFAULT 0,
    key_rate_milli INT8        NOT NULL DEFAULT 0,
    revision       INT8        NOT NULL,
    claims         INT8        NOT NULL,
    at             TIMESTAMPTZ NOT NULL,
    by_name        TEXT        NOT NULL,
    reason         TEXT        NOT NULL
);

-- What each committer of a node may use of an agent's limit.
CREATE TABLE IF NOT EXISTS limit_grants (
    agent      TEXT        NOT NULL,
    holder     TEXT        NOT NULL,
    wanted     INT8        NOT NULL,
    places     INT8        NOT NULL,
    rate_milli INT8        NOT NULL,
    until_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (agent, holder)
);

-- What each committer of a node may use of a key. What is neither used nor wanted has no row.
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

-- In whose grants it is counted what a partition has out: in those of a holder, as of an epoch. epoch is that of its owner.
CREATE TABLE IF NOT EXISTS limit_partitions (
    partition INT8    NOT NULL PRIMARY KEY,
    epoch     INT8    NOT NULL,
    counted   INT8    NOT NULL DEFAULT 0,
    holder    TEXT    NOT NULL DEFAULT ''
);

-- How the tries of steps ended, of their dos and of their undos.
CREATE OR REPLACE VIEW step_ends AS
SELECT partition, number, round, step AS ordinal, seq, kind = 'undone' OR kind <> 'probed' AND step_status IN ('undoing', 'undone') AS of_undo,
       attempt, code, error, result
FROM journal
WHERE step IS NOT NULL AND kind NOT IN ('cancelled', 'undo_asked', 'started') AND (kind NOT IN ('late', 'probed') OR code <> 0 OR kind = 'probed' AND step_status = 'done');

-- Every step of the tasks that have a journal, with what its last rows say: for people and their tools. A step is also as a
-- later row of the whole task says: undos that gave up or are in trouble begin again when the undo is asked for again; when
-- the database went back, what is done is done again, but not what an operator accepted, nor when the task is about to be
-- undone. What waits for an instant or a signal has nothing to undo. A late answer that a do took effect ends nothing.
CREATE OR REPLACE VIEW steps AS
SELECT s.partition, s.number, s.task, s.type, s.round, s.ordinal, s.name, s.agent,
       CASE WHEN s.status = 'undoing' AND (s.state IN ('processed', 'undone', 'error') OR NOT s.again AND s.kind IN ('undo_refused', 'undo_gave_up')) THEN 'gave_up'
            WHEN NOT s.again OR s.status <> 'done' THEN s.status WHEN s.state = 'undone' THEN 'skipped' ELSE 'waiting' END AS status,
       CASE WHEN s.back THEN COALESCE((SELECT CASE WHEN y.next = s.ordinal AND NOT y.undo THEN y.next_attempt ELSE e.attempt END FROM journal y
                LEFT JOIN step_ends e ON e.partition = y.partition AND e.number = y.number AND e.seq = y.seq AND e.ordinal = s.ordinal AND NOT e.of_undo
                WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND (y.next = s.ordinal AND NOT y.undo OR e.seq IS NOT NULL) ORDER BY y.seq DESC LIMIT 1), 0)
            WHEN s.again THEN 0 ELSE s.attempt END AS attempt, CASE WHEN NOT s.again THEN s.due END AS due,
       (SELECT y.code FROM step_ends y WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND y.ordinal = s.ordinal AND NOT y.of_undo ORDER BY y.seq DESC LIMIT 1) AS code,
       (SELECT y.error FROM step_ends y WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND y.ordinal = s.ordinal AND NOT y.of_undo ORDER BY y.seq DESC LIMIT 1) AS error,
       (SELECT y.result FROM step_ends y WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND y.ordinal = s.ordinal AND NOT y.of_undo ORDER BY y.seq DESC LIMIT 1) AS result,
       CASE WHEN NOT s.back OR s.again THEN 0 ELSE s.attempt END AS undo_attempt,
       (SELECT y.code FROM step_ends y WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND y.ordinal = s.ordinal AND y.of_undo ORDER BY y.seq DESC LIMIT 1) AS undo_code,
       (SELECT y.error FROM step_ends y WHERE y.partition = s.partition AND y.number = s.number AND y.round = s.round AND y.ordinal = s.ordinal AND y.of_undo ORDER BY y.seq DESC LIMIT 1) AS undo_error, s.at, s.actor, s.seq, s.step_kind AS kind, s.state AS task_state
FROM (
    SELECT b.*, b.status IN ('undoing', 'undone') OR b.kind = 'undone' AS back, CASE b.status
           WHEN 'undoing' THEN EXISTS (SELECT 1 FROM journal x WHERE x.partition = b.partition AND x.number = b.number
               AND x.round = b.round AND x.seq > b.seq AND x.kind IN ('cancelled', 'undo_asked'))
           WHEN 'done' THEN b.kind <> 'accepted' AND EXISTS (SELECT 1 FROM journal x WHERE x.partition = b.partition AND x.number = b.number
               AND x.round = b.round AND x.seq > b.seq AND x.kind = 'went_back'
               AND (x.state IN ('pending', 'processing', 'error') OR EXISTS (SELECT 1 FROM journal y WHERE y.partition = x.partition AND y.number = x.number
               AND y.round = x.round AND y.seq > x.seq AND y.kind = 'resubmitted')))
           ELSE FALSE END AS again
    FROM (
        SELECT t.partition, t.number, t.id AS task, t.type, t.state, t.round, ps.ordinal, ps.name, ps.agent, ps.kind AS step_kind,
               CASE WHEN j.seq IS NULL AND t.state = 'undone' THEN 'skipped'
                    WHEN j.seq IS NULL THEN 'waiting'
                    WHEN j.next = ps.ordinal AND j.undo THEN 'undoing'
                    WHEN j.next = ps.ordinal AND ps.kind IN ('wait', 'signal') AND t.state IN ('undoing', 'undone') THEN 'skipped'
                    WHEN j.next = ps.ordinal THEN 'running'
                    WHEN j.step_status = 'waiting' AND t.state = 'undone' THEN 'skipped'
                    WHEN j.kind = 'signalled' THEN 'signalled'
                    ELSE j.step_status END AS status,
               CASE WHEN j.seq IS NULL THEN 0 WHEN j.next = ps.ordinal THEN COALESCE(j.next_attempt, 0) ELSE j.attempt END AS attempt,
               CASE WHEN j.next = ps.ordinal OR j.next IS NULL THEN j.due END AS due,
               j.at, j.actor, j.seq, CASE WHEN j.step = ps.ordinal THEN j.kind ELSE '' END AS kind
        FROM tasks t
        JOIN plan_steps ps ON ps.plan = t.type AND ps.version = t.plan_version
        LEFT JOIN LATERAL (
            SELECT * FROM journal x
            WHERE x.partition = t.partition AND x.number = t.number AND x.round = t.round
              AND (x.step = ps.ordinal OR x.next = ps.ordinal) AND (x.kind <> 'late' OR x.code <> 0)
            ORDER BY x.seq DESC LIMIT 1
        ) j ON TRUE
        WHERE EXISTS (SELECT 1 FROM journal x WHERE x.partition = t.partition AND x.number = t.number)
    ) b
) s;
