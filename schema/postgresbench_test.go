package schema_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/pgtestdb"
	"duly.dev/duly/schema"
)

// BenchmarkPostgresCost runs a steady stream of five-step tasks, each batch with
// births, steps and endings as a busy node commits them, and reports what one
// task costs: CPU of this process within Commit, CPU of the server, and WAL. A
// server that has run for a while recycles its WAL files, a fresh one would fill
// each with zeros first: that is turned off.
func BenchmarkPostgresCost(b *testing.B) {
	for _, size := range []int{24, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := open(b, pgtestdb.URL(b)+"&wal_init_zero=off", schema.Options{MaxConns: 1})
			x := newBench(b, s)
			m := meter{tb: b, db: schema.DB(s)}
			stream := make([]core.TaskWrite, size)
			for range 20 { // tasks of every age
				if err := x.step(stream, nil); err != nil {
					b.Fatal(err)
				}
			}
			x.ended = 0
			m.start()
			b.ReportAllocs()
			for b.Loop() {
				if err := x.step(stream, &m); err != nil {
					b.Fatal(err)
				}
			}
			m.report(b, x.ended)
		})
	}
}

// BenchmarkPostgresPurge is the same with inputs of 300 bytes, and with what the
// tasks were made of forgotten a hundred commits after their end, a partition after
// each commit, and the tables vacuumed now and then, as autovacuum does.
func BenchmarkPostgresPurge(b *testing.B) {
	const size, kept, vacuum = 1000, 100 * time.Millisecond, 100
	s := open(b, pgtestdb.URL(b)+"&wal_init_zero=off", schema.Options{MaxConns: 1})
	x := newBench(b, s)
	x.input = []byte(`"` + strings.Repeat("delivery ", 33) + `"`)
	m := meter{tb: b, db: schema.DB(s)}
	stream := make([]core.TaskWrite, size)
	step := func(m *meter) {
		if err := x.step(stream, m); err != nil {
			b.Fatal(err)
		}
		p := &x.partitions[x.turn%benchPartitions]
		p.Told = p.NextEnd - 1
		if _, err := s.Purge(b.Context(), p.Partition, p.Epoch, x.at.Add(-kept), 0, 250); err != nil {
			b.Fatal(err)
		}
		if x.turn%vacuum > 0 {
			return
		}
		for _, q := range []string{`VACUUM tasks`, `VACUUM journal`} {
			if _, err := schema.DB(s).Exec(q); err != nil {
				b.Fatal(err)
			}
		}
	}
	for range 2 * vacuum {
		step(nil)
	}
	x.ended = 0
	m.start()
	for b.Loop() {
		step(&m)
	}
	m.report(b, x.ended)
}

// step lets one event happen to each task of the stream and commits that; tasks
// that have ended make room for new ones. Ages differ, so that every batch has
// births and endings.
func (x *bench) step(stream []core.TaskWrite, m *meter) error {
	x.at = x.at.Add(time.Millisecond)
	x.turn++
	n := 0
	for i := range stream {
		w := &stream[i]
		switch {
		case w.Task == nil && i%6 != x.turn%6: // begins later
			continue
		case w.Task == nil || w.Task.State.Ended():
			x.birth(w, i%benchPartitions)
		default:
			if err := x.answer(w); err != nil {
				return err
			}
		}
		stream[n], stream[i] = stream[i], stream[n]
		n++
	}
	if m == nil {
		return x.write(stream[:n])
	}
	before := selfCPU()
	err := x.write(stream[:n])
	m.client += selfCPU() - before
	return err
}

// meter sums up what a benchmark costs.
type meter struct {
	tb     testing.TB
	db     *sql.DB
	client time.Duration
	server time.Duration
	wal    int64
}

func (m *meter) start() {
	m.server, m.wal = m.serverCPU(), m.lsn()
}

func (m *meter) report(b *testing.B, tasks int) {
	server, wal := m.serverCPU()-m.server, m.lsn()-m.wal
	n := float64(tasks)
	b.ReportMetric(n/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(m.client.Nanoseconds())/1000/n, "client-µs/task")
	b.ReportMetric(float64(server.Nanoseconds())/1000/n, "server-µs/task")
	b.ReportMetric(float64((m.client+server).Nanoseconds())/1000/n, "µs/task")
	b.ReportMetric(float64(wal)/n, "WAL-B/task")
}

func (m *meter) lsn() int64 {
	var n int64
	if err := m.db.QueryRow(`SELECT (pg_current_wal_insert_lsn() - '0/0')::INT8`).Scan(&n); err != nil {
		m.tb.Fatal(err)
	}
	return n
}

// serverCPU is what the processes of the server that live now have used: the
// connections of this database, and those that write what they leave behind.
func (m *meter) serverCPU() time.Duration {
	rows, err := m.db.Query(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' OR backend_type IN ('walwriter', 'background writer', 'checkpointer')`)
	if err != nil {
		m.tb.Fatal(err)
	}
	defer rows.Close()
	var sum time.Duration
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			m.tb.Fatal(err)
		}
		sum += processCPU(pid)
	}
	if err := rows.Err(); err != nil {
		m.tb.Fatal(err)
	}
	return sum
}

// processCPU is the processor time of a process with one thread, zero if the
// machine does not tell or the process is gone.
func processCPU(pid int) time.Duration {
	f, err := os.Open(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return 0
	}
	word, _, _ := strings.Cut(line, " ")
	ns, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ns)
}
