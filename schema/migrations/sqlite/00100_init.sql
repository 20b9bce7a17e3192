-- +goose Up

-- The versions of each plan: spec is its canonical form. A deprecated one takes new submissions only by name.
CREATE TABLE plans (
    name          TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    spec          BLOB    NOT NULL,
    created_at    INTEGER NOT NULL DEFAULT 0,
    deprecated_at INTEGER,
    PRIMARY KEY (name, version)
);

-- The steps of a plan version as columns, for the view steps and for people. ordinal counts from 0.
CREATE TABLE plan_steps (
    plan           TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    ordinal        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    kind           TEXT    NOT NULL DEFAULT 'call',
    agent          TEXT    NOT NULL,
    undoable       INTEGER NOT NULL,
    after_steps    TEXT    NOT NULL,
    complete_by_ms INTEGER NOT NULL,
    attempts_max   INTEGER NOT NULL,
    on_exhausted   TEXT    NOT NULL,
    PRIMARY KEY (plan, version, ordinal)
);

-- One row a partition: who owns it, and how far it has come. Each commit updates it; that is the fence.
CREATE TABLE partitions (
    partition        INTEGER NOT NULL PRIMARY KEY,
    -- epoch rises with each takeover; last_commit is the id of the last commit, or of the takeover. A copy of the database
    -- that is a second behind, or restored, has another one.
    owner            TEXT    NOT NULL DEFAULT '',
    epoch            INTEGER NOT NULL DEFAULT 0,
    last_commit      INTEGER NOT NULL DEFAULT 0,
    -- Positions in the task and the control stream, the identities of the two, and when they took the messages at the
    -- cursors: a stream that was restored, and has grown past a cursor since, has another message there.
    stream           TEXT    NOT NULL DEFAULT '',
    cursor           INTEGER NOT NULL DEFAULT 0,
    control_cursor   INTEGER NOT NULL DEFAULT 0,
    cursor_stored    INTEGER,
    control_stored   INTEGER,
    -- The next task and the next ending; the endings up to told are published, those up to forgotten have no journal.
    next_number      INTEGER NOT NULL DEFAULT 1,
    next_end         INTEGER NOT NULL DEFAULT 1,
    told             INTEGER NOT NULL DEFAULT 0,
    forgotten        INTEGER NOT NULL DEFAULT 0,
    -- When a takeover last found that the database had gone back; tasks below which number, and submissions up to which
    -- position of the task stream, may have run before.
    went_back_at     INTEGER,
    went_back_number INTEGER NOT NULL DEFAULT 0,
    went_back_until  INTEGER NOT NULL DEFAULT 0,
    -- The epoch whose owner keeps the chain; one that keeps none leaves it as it is.
    chain_epoch      INTEGER NOT NULL DEFAULT 0
);

-- Every task, as far as its owner has written it: what a task was made of, and each event since, is in the journal.
CREATE TABLE tasks (
    partition     INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    id            TEXT    NOT NULL CHECK (instr(id, char(0)) = 0),
    type          TEXT    NOT NULL CHECK (instr(type, char(0)) = 0),
    plan_version  INTEGER NOT NULL,
    labels        TEXT,
    input_hash    BLOB,
    -- Where the submission was in the task stream, who hears of the end, and its trace.
    origin        INTEGER NOT NULL,
    reply_to      TEXT    CHECK (instr(reply_to, char(0)) = 0),
    trace         TEXT    CHECK (instr(trace, char(0)) = 0),
    -- Of a child: the number of its parent, the step of it, and which of the step's children it is.
    parent        INTEGER,
    parent_step   INTEGER,
    child_index   INTEGER,
    -- When a task that starts later does.
    start_at      INTEGER,
    -- As of the last journal row that the task's row tells of; round counts how often the task has begun again.
    state         TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    round         INTEGER NOT NULL,
    commit_id     INTEGER NOT NULL,
    locked_by     TEXT,
    waits_for     TEXT,
    -- A lower bound of the instant that the supervisor asks at; the task's own deadline.
    complete_by   INTEGER,
    deadline      INTEGER,
    -- The signal steps that wait for their answers: bit i is step i; since when the first of them, and until when the first.
    signal_steps  BLOB,
    signal_since  INTEGER,
    signal_due    INTEGER,
    failure_count INTEGER NOT NULL,
    -- What groups failures, of tasks in error or undone: the step that failed, as plan_steps counts, and a hash of it and of
    -- the text without what varies.
    failed_step   INTEGER,
    fingerprint   TEXT,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    end_number    INTEGER,
    PRIMARY KEY (partition, number)
);
CREATE UNIQUE INDEX tasks_id ON tasks (partition, id);
-- What is due, in two: a takeover loads the tasks in hand, and must not walk the parked ones, of which there may be many. A
-- row is in one of them at most, and in none when its task has ended. Those in hand are few, so what is overdue among them is
-- found by walking this index alone.
CREATE INDEX tasks_active ON tasks (partition, number, complete_by) WHERE state IN ('processing', 'undoing');
CREATE INDEX tasks_parked ON tasks (partition, complete_by, number) WHERE state = 'pending';
CREATE INDEX tasks_waiting ON tasks (partition, waits_for, number) WHERE waits_for IS NOT NULL;
CREATE UNIQUE INDEX tasks_ended ON tasks (partition, end_number) WHERE end_number IS NOT NULL;
-- The children of a step, in the order in which they were born: that of their numbers.
CREATE INDEX tasks_children ON tasks (partition, parent, parent_step, number) WHERE parent IS NOT NULL;
-- The rest is for people. The list of the tasks of a state goes by number, as all lists do; a task that ends well is in none.
CREATE INDEX tasks_pending ON tasks (partition, number) WHERE state = 'pending';
CREATE INDEX tasks_by_state ON tasks (partition, state, number, type) WHERE state IN ('undone', 'error');
-- The failure groups, one after the other, each with its tasks; and the oldest and newest of a group by the time of its end.
CREATE INDEX tasks_groups ON tasks (state, type, fingerprint, partition, number) WHERE state IN ('undone', 'error');
CREATE INDEX tasks_group_ends ON tasks (state, type, fingerprint, ended_at) WHERE state IN ('undone', 'error');
-- Open signals: their list, the oldest, and the most urgent.
CREATE INDEX tasks_signals ON tasks (partition, number) WHERE signal_steps IS NOT NULL;
CREATE INDEX tasks_signal_since ON tasks (signal_since) WHERE signal_steps IS NOT NULL;
CREATE INDEX tasks_signal_due ON tasks (signal_due, signal_steps) WHERE signal_steps IS NOT NULL;

-- One row an event of a task. The first has the task's input; what is forgotten of a task is these rows. With rowids: rows of
-- many tasks are appended, and only the index of their keys is written in as many places as there are tasks.
CREATE TABLE journal (
    partition    INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    actor        TEXT    NOT NULL,
    commit_id    INTEGER NOT NULL,
    -- Of this row; one of a later format is not read.
    format       INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    round        INTEGER NOT NULL,
    input        BLOB,
    -- What became of a step.
    step         INTEGER,
    step_status  TEXT,
    attempt      INTEGER NOT NULL,
    code         INTEGER,
    error        BLOB,
    fingerprint  TEXT,
    reason       BLOB,
    result       BLOB,
    quiet        INTEGER,
    -- The command that leaves with it.
    next         INTEGER,
    next_attempt INTEGER,
    undo         INTEGER NOT NULL,
    due          INTEGER,
    deadline     INTEGER,
    PRIMARY KEY (partition, number, seq)
);

-- The labels of tasks, one by one, by which tasks are found. A task's own row has them as its submission did.
CREATE TABLE labels (
    partition INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    key       TEXT    NOT NULL,
    value     TEXT    NOT NULL,
    PRIMARY KEY (partition, number, key)
) WITHOUT ROWID;
-- Newest first. By -number, because no other index has that order: a planner would else walk the key of the table in the
-- hope of a match, which may be far.
CREATE INDEX labels_found ON labels (key, value, partition, (-number));

-- The proof of the journal: a link for each commit that wrote a task of the partition, where a chain is kept. The content
-- names the rows with their digests; the hash covers it and the hash before.
CREATE TABLE chain (
    partition INTEGER NOT NULL,
    height    INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    commit_id INTEGER NOT NULL,
    linked_at INTEGER,
    kind      INTEGER NOT NULL,
    content   BLOB    NOT NULL,
    hash      BLOB    NOT NULL,
    PRIMARY KEY (partition, height)
) WITHOUT ROWID;

-- Which installation this is; its streams and buckets carry the same id.
CREATE TABLE installation (
    one       INTEGER NOT NULL DEFAULT 1 PRIMARY KEY CHECK (one = 1),
    id        TEXT    NOT NULL,
    namespace TEXT    NOT NULL DEFAULT ''
);
INSERT INTO installation (id) VALUES (lower(hex(randomblob(16))));

-- One action over many tasks. The state is 'freezing' until all its members are there, and 'dropping' while they go.
CREATE TABLE operations (
    id            TEXT    NOT NULL PRIMARY KEY,
    state         TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    action        TEXT    NOT NULL,
    selection     TEXT    NOT NULL,
    failure_group TEXT    NOT NULL,
    request       BLOB    NOT NULL,
    rehearsal     BLOB,
    tasks         INTEGER NOT NULL,
    waiting       INTEGER NOT NULL,
    asked         INTEGER NOT NULL,
    done          INTEGER NOT NULL,
    failed_again  INTEGER NOT NULL,
    skipped       INTEGER NOT NULL,
    wave          INTEGER NOT NULL,
    rate          INTEGER NOT NULL,
    brake         INTEGER NOT NULL,
    by_name       TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    expires_at    INTEGER NOT NULL,
    epoch         INTEGER NOT NULL
);
CREATE INDEX operations_newest ON operations (created_at, id);

-- The tasks of an operation, as they were when it was frozen, and what became of each.
CREATE TABLE operation_members (
    operation   TEXT    NOT NULL,
    ordinal     INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    step        TEXT    NOT NULL,
    wave        INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    words       TEXT,
    fingerprint TEXT,
    PRIMARY KEY (operation, ordinal)
);
CREATE INDEX operation_members_outcome ON operation_members (operation, outcome, ordinal);
CREATE UNIQUE INDEX operation_members_task ON operation_members (operation, partition, number);

-- The last number of each table that counts in the order of its commits.
CREATE TABLE numbers (
    name TEXT    NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
);

-- What operators did. Rows are added, and what became of one is added to it once; targets are bytes, so that a prefix is a
-- range whatever the collation.
CREATE TABLE audit (
    number      INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    role        TEXT    NOT NULL,
    from_addr   TEXT    NOT NULL,
    via         TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    target      BLOB    NOT NULL,
    reason      TEXT    NOT NULL,
    was         BLOB,
    is_now      BLOB,
    outcome     TEXT    NOT NULL,
    became      TEXT,
    request_key TEXT,
    request_id  TEXT    NOT NULL
);
CREATE UNIQUE INDEX audit_key ON audit (request_key);
CREATE INDEX audit_at ON audit (at, number);
CREATE INDEX audit_actor ON audit (actor, number);
CREATE INDEX audit_action ON audit (action, number);
CREATE INDEX audit_target ON audit (target, number);
CREATE INDEX audit_open ON audit (number) WHERE became IS NULL;

-- What operators wrote down about a task or a failure group.
CREATE TABLE notes (
    target  TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    by_name TEXT    NOT NULL,
    words   TEXT    NOT NULL,
    PRIMARY KEY (target, number)
);

-- Tokens of programs, as hashes.
CREATE TABLE tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    by_name    TEXT    NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    used_at    INTEGER,
    labels     TEXT    NOT NULL
);

-- The sessions of people, for all nodes. An id is a hash: who reads the table can be in none of them. Its owner is the id of
-- a token, or a person of an identity provider.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    data       BLOB    NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_ends ON sessions (expires_at, id);
CREATE INDEX sessions_owners ON sessions (owner);

-- Documents that operators change while nodes run, one for each subject.
CREATE TABLE settings (
    name     TEXT NOT NULL PRIMARY KEY,
    document BLOB NOT NULL
);

-- What operators hold back for now.
CREATE TABLE pauses (
    id       TEXT    NOT NULL PRIMARY KEY,
    type     TEXT    NOT NULL,
    step     TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    label    TEXT    NOT NULL,
    until_at INTEGER,
    at       INTEGER NOT NULL,
    by_name  TEXT    NOT NULL,
    reason   TEXT    NOT NULL
);

-- What does not agree between journal and services, as the newest comparison found it, and what operators accepted.
CREATE TABLE ghosts (
    agent      TEXT    NOT NULL,
    effect     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    task       TEXT    NOT NULL,
    type       TEXT    NOT NULL,
    step       TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    times      INTEGER NOT NULL,
    made_at    INTEGER,
    words      TEXT    NOT NULL,
    found_at   INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    undoable   INTEGER NOT NULL,
    again      INTEGER NOT NULL,
    repair     TEXT    NOT NULL,
    by_name    TEXT    NOT NULL,
    decided_at INTEGER,
    reason     TEXT    NOT NULL,
    audit      INTEGER NOT NULL,
    PRIMARY KEY (agent, effect)
) WITHOUT ROWID;

-- Tasks that are submitted again and again. What an operator wrote is kept as written; from revision on it is what has
-- become of it. A write raises the revision, and is fenced by the one that it has read; due_at is when a look is needed next.
CREATE TABLE schedules (
    name          TEXT    NOT NULL PRIMARY KEY,
    type          TEXT    NOT NULL,
    input         BLOB    NOT NULL,
    plan_version  INTEGER NOT NULL,
    complete_by   TEXT    NOT NULL,
    labels        TEXT    NOT NULL,
    cron          TEXT    NOT NULL,
    every         TEXT    NOT NULL,
    zone          TEXT    NOT NULL,
    from_at       INTEGER,
    until_at      INTEGER,
    jitter        TEXT    NOT NULL,
    overlap       TEXT    NOT NULL,
    queue         INTEGER NOT NULL,
    catch_up      TEXT    NOT NULL,
    catch_ups     INTEGER NOT NULL,
    paused        INTEGER NOT NULL,
    revision      INTEGER NOT NULL,
    by_name       TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    changed_at    INTEGER NOT NULL,
    cursor_at     INTEGER NOT NULL,
    waiting       BLOB    NOT NULL,
    last_run      INTEGER,
    last_task     TEXT    NOT NULL,
    last_at       INTEGER,
    last_place    INTEGER NOT NULL,
    outcome       TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    submitted     INTEGER NOT NULL,
    skipped       INTEGER NOT NULL,
    missed        INTEGER NOT NULL,
    failing_since INTEGER,
    failure       TEXT    NOT NULL,
    due_at        INTEGER
) WITHOUT ROWID;

-- How long steps take, as each node has seen it: a step of a plan version, or with an empty type an agent. Small, written
-- about once a minute; rows that are not written any more are forgotten after a week.
CREATE TABLE forecasts (
    node    TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    step    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (node, type, version, step)
) WITHOUT ROWID;

-- Breakers of agents: one row for each agent whose breaker has ever opened, or that an operator has opened or closed.
CREATE TABLE breakers (
    agent    TEXT    NOT NULL PRIMARY KEY,
    state    TEXT    NOT NULL,
    since    INTEGER NOT NULL,
    until_at INTEGER,
    openings INTEGER NOT NULL,
    stage    INTEGER NOT NULL,
    forced   INTEGER NOT NULL,
    by_name  TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    revision INTEGER NOT NULL
);

-- What each node has counted lately of the calls of an agent that fail; written while they do.
CREATE TABLE breaker_calls (
    agent    TEXT    NOT NULL,
    node     TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    done     INTEGER NOT NULL,
    failed   INTEGER NOT NULL,
    PRIMARY KEY (agent, node)
) WITHOUT ROWID;

-- Limits of agents over all nodes, and for each key of a task: what makes the key, and what bounds each. claims rises with
-- each claim of a grant: its row is what they lock.
CREATE TABLE limits (
    agent          TEXT    NOT NULL PRIMARY KEY,
    concurrent     INTEGER NOT NULL,
    rate_milli     INTEGER NOT NULL,
    key_expr       TEXT    NOT NULL DEFAULT '',
    key_concurrent INTEGER NOT NULL DEFAULT 0,
    key_rate_milli INTEGER NOT NULL DEFAULT 0,
    revision       INTEGER NOT NULL,
    claims         INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    by_name        TEXT    NOT NULL,
    reason         TEXT    NOT NULL
);

-- What each committer of a node may use of an agent's limit.
CREATE TABLE limit_grants (
    agent      TEXT    NOT NULL,
    holder     TEXT    NOT NULL,
    wanted     INTEGER NOT NULL,
    places     INTEGER NOT NULL,
    rate_milli INTEGER NOT NULL,
    until_at   INTEGER NOT NULL,
    PRIMARY KEY (agent, holder)
) WITHOUT ROWID;

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

-- In whose grants it is counted what a partition has out: in those of a holder, as of an epoch. epoch is that of its owner.
CREATE TABLE limit_partitions (
    partition INTEGER NOT NULL PRIMARY KEY,
    epoch     INTEGER NOT NULL,
    counted   INTEGER NOT NULL DEFAULT 0,
    holder    TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- How the tries of steps ended, of their dos and of their undos.
CREATE VIEW step_ends AS
SELECT partition, number, round, step AS ordinal, seq, kind = 'undone' OR kind <> 'probed' AND step_status IN ('undoing', 'undone') AS of_undo,
       attempt, code, error, result
FROM journal
WHERE step IS NOT NULL AND kind NOT IN ('cancelled', 'undo_asked', 'started') AND (kind NOT IN ('late', 'probed') OR code <> 0 OR kind = 'probed' AND step_status = 'done');

-- Every step of the tasks that have a journal, with what its last rows say: for people and their tools. A step is also as a
-- later row of the whole task says: undos that gave up or are in trouble begin again when the undo is asked for again; when
-- the database went back, what is done is done again, but not what an operator accepted, nor when the task is about to be
-- undone. What waits for an instant or a signal has nothing to undo. A late answer that a do took effect ends nothing.
CREATE VIEW steps AS
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
        LEFT JOIN journal j ON j.partition = t.partition AND j.number = t.number AND j.seq = (
            SELECT max(x.seq) FROM journal x
            WHERE x.partition = t.partition AND x.number = t.number AND x.round = t.round
              AND (x.step = ps.ordinal OR x.next = ps.ordinal) AND (x.kind <> 'late' OR x.code <> 0))
        WHERE EXISTS (SELECT 1 FROM journal x WHERE x.partition = t.partition AND x.number = t.number)
    ) b
) s;

-- SQLite cannot know that few rows are in an index: without figures it would walk the primary key. How many rows there are, and
-- how many for one value of the first column, of the first two … The second ANALYZE reads the figures.
ANALYZE sqlite_schema;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('tasks', 'sqlite_autoindex_tasks_1', '10000000 600000 1'),
    ('tasks', 'tasks_id', '10000000 600000 1'),
    ('tasks', 'tasks_ended', '9000000 500000 1'),
    ('tasks', 'tasks_waiting', '1000000 60000 6000 1'),
    ('tasks', 'tasks_parked', '1000000 60000 2 1'),
    ('tasks', 'tasks_active', '10000 600 1 1'),
    ('tasks', 'tasks_pending', '1000000 60000 1'),
    ('tasks', 'tasks_by_state', '100000 6000 3000 1 1'),
    ('tasks', 'tasks_groups', '100000 50000 25000 2000 125 1'),
    ('tasks', 'tasks_group_ends', '100000 50000 25000 2000 1'),
    ('operation_members', 'sqlite_autoindex_operation_members_1', '1000000 10000 1'),
    ('operation_members', 'operation_members_outcome', '1000000 10000 2000 1'),
    ('operation_members', 'operation_members_task', '1000000 10000 600 1'),
    ('audit', 'audit_at', '1000000 10 1'),
    ('audit', 'audit_actor', '1000000 10000 1'),
    ('audit', 'audit_action', '1000000 50000 1'),
    ('audit', 'audit_target', '1000000 10 1'),
    ('audit', 'audit_open', '100 1');
ANALYZE sqlite_schema;
