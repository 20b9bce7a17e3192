package schema

import (
	"context"
	"database/sql"
	"strings"

	"duly.dev/duly/internal/core"
)

// DB is the database behind a store, for tests that look behind it.
func DB(s Store) *sql.DB { return baseOf(s).running.db.DB }

// WriterDB is the database of a SQLite store that may be written to.
func WriterDB(s Store) *sql.DB { return baseOf(s).writer }

// baseOf is the base of a store.
func baseOf(s Store) *Base { return s.(interface{ base() *Base }).base() }

// Reads are the queries that must not walk all tasks, with values for their
// parameters and the indexes they go by.
var Reads = []struct {
	Name, SQL, Values string
	Indexes           []string
}{
	{"active", strings.ReplaceAll(newQueries(Columns()).active, "?", "$"), "1, 0, 1000", []string{"tasks_active"}},
	{"overdue", strings.ReplaceAll(overdueRows, "?", "$"), "1, '2040-01-01', '1970-01-01', 0, 1000", []string{"tasks_active", "tasks_parked"}},
	{"overdue partitions", strings.ReplaceAll(qOverduePartitions, "?", "$"), "0, '2040-01-01', '1970-01-01'", []string{"tasks_active", "tasks_parked"}},
	{"waiting", strings.ReplaceAll(qWaiting, "?", "$"), "1, 'agent1', 100, 1000", []string{"tasks_waiting"}},
	{"next agent", strings.ReplaceAll(qNextAgent, "?", "$"), "1, ''", []string{"tasks_waiting"}},
	{"untold", strings.ReplaceAll(qUntold, "?", "$"), "1, 3, 1000", []string{"tasks_ended"}},
	{"ended", strings.ReplaceAll(qEnded, "?", "$"), "1, 1000000000, 500", []string{"tasks_ended"}},
}

// AskedDB is the database as those who ask see it.
func AskedDB(s Store) *sql.DB { return readerOf(s).db.DB }

// Ask begins a question of someone who asks.
func Ask(ctx context.Context, s Store, query string) (Rows, error) {
	return readerOf(s).db.QueryContext(ctx, query)
}

// Rows are those of a question.
type Rows = rowSet

// First leaves the rows of a query at the first.
func First(rows *sql.Rows, err error) {
	for range each(rows, err) {
		return
	}
}

func readerOf(s Store) *reader { return baseOf(s).asked.of }

// Question is a query of those who ask.
type Question struct {
	SQL  string
	Args []any
}

// Listing are the queries of a list of partition 1 below a number, and of the look at what it filters.
func Listing(ctx context.Context, s Store, f core.Filter, below int64) ([]Question, error) {
	r := readerOf(s)
	sources, err := r.sources(ctx, f)
	if err != nil || len(sources) == 0 {
		return nil, err
	}
	q, args := r.listQuery(1, 0, below, f, sources)
	return []Question{{r.params(q), args}}, nil
}

// GroupQuestions are the queries by which a page of groups goes on, and the one about a group.
func GroupQuestions(s Store) []Question {
	r := readerOf(s)
	k := groupKey{core.StateError, "order", "0000000000000030"}
	var all []Question
	for _, query := range []func(c *conditions) string{k.nextTypeQuery, k.nextFingerprintQuery, func(c *conditions) string { return r.groupQuery(c, k) }, func(c *conditions) string { return k.rankQuery(c, "") }} {
		c := conditions{}
		q := query(&c)
		all = append(all, Question{r.params(q), c.args})
	}
	return all
}

// Labelled are the queries of a list by label of partition 1: the numbers, and their rows.
func Labelled(s Store, label string) []Question {
	r := readerOf(s)
	key, value, _ := strings.Cut(label, "=")
	return []Question{
		{r.params(qLabelled), []any{1, key, value, -int64(1 << 62), 51}},
		{r.params(`SELECT ` + r.sql.listed + r.among("tasks", "number") + ` ORDER BY number DESC`), []any{1, r.list([]int64{5, 7, 100})}},
	}
}

// SignalQuestions are the queries about open signals.
func SignalQuestions(s Store) []Question {
	r := readerOf(s)
	return []Question{{r.params(qSignalCounts), []any{r.time(1), 100}}, {r.params(qSignalOldest), nil}, {r.params(qSignalNext), []any{10}}}
}

// KeyQuestions are the statements by which an agent's grants of keys are read, deleted and forgotten.
func KeyQuestions(s Store, agent string, keys, holders []string) []Question {
	r := readerOf(s)
	read, readArgs := r.keyGrants(agent, keys)
	drop, dropArgs := r.dropKeyGrants(agent, keys, holders)
	return []Question{{r.params(read), readArgs}, {r.params(drop), dropArgs}, {r.params(qForgetKeys), []any{agent, r.time(5), forgetMax}}}
}

// Countings are the queries of counts of partition 1.
func Countings(s Store) (all []Question) {
	for _, is := range countedStates {
		all = append(all, Question{readerOf(s).params(is.query), []any{1, 100}})
	}
	return all
}
