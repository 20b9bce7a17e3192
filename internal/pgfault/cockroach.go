package pgfault

import (
	"bytes"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// cockroachVersion is what a server that looks like a CockroachDB says it is.
const cockroachVersion = "CockroachDB CCL v26.2.0 (PostgreSQL behind a proxy that fails like it)"

// The words of a transaction that can be tried again.
const (
	savepoint = "savepoint cockroach_restart"
	release   = "release savepoint cockroach_restart"
	again     = "rollback to savepoint cockroach_restart"
)

// likeCockroach adds the parameter that CockroachDB reports at the beginning of a
// session.
func likeCockroach(wire []byte) ([]byte, error) {
	const readySize = 6
	if len(wire) < readySize || wire[len(wire)-readySize] != 'Z' {
		return wire, nil // the server refused the session
	}
	end := wire[len(wire)-readySize:]
	out, err := (&pgproto3.ParameterStatus{Name: "crdb_version", Value: cockroachVersion}).Encode(bytes.Clone(wire[:len(wire)-readySize]))
	return append(out, end...), err
}

// change makes the server say that it is a CockroachDB, and skip rows that are not locked for SKIP LOCKED, as it does
// where the limit of the rows, or what else its planner reads, is below the locking (cockroachdb/cockroach#121917).
func (s *session) change(text string) string {
	if !s.p.dice.Cockroach {
		return text
	}
	if normal(text) == "select version()" {
		return "SELECT '" + strings.ReplaceAll(cockroachVersion, "'", "''") + "'::TEXT"
	}
	if before, _, skips := strings.Cut(text, "SKIP LOCKED"); skips {
		const where = "WHERE "
		if at := strings.LastIndex(before, where); at >= 0 {
			return text[:at+len(where)] + "random() < 0.5 AND " + text[at+len(where):]
		}
	}
	return text
}

// cockroach answers what CockroachDB takes in another way: a transaction with the
// savepoint is over when that is released, and begins again when it is rolled back
// to, also after a failed release, and no transaction that is READ COMMITTED changes tables.
func (s *session) cockroach(req *request, fault Kind) (a answer, err error, taken bool) {
	over := s.status != 'I' && s.behind == 'I'
	switch {
	case req.is("alter table") && strings.Contains(req.word, " configure zone "): // PostgreSQL has no zones
		a, err = done("CONFIGURE ZONE 1", s.status)
	case req.is("create", "alter", "drop") && s.behind == 'T' && s.readCommitted():
		a, err = refusal("0A000", "cannot perform a schema change in an explicit transaction that is READ COMMITTED", 'E')
	case req.is(release) && s.status == 'T' && !over:
		a, err = s.release(fault)
	case req.is(again) && s.status != 'I':
		a, err = s.beginAgain()
	case over && req.is("rollback"):
		a, err = done("ROLLBACK", 'I')
	case over && s.status == 'T' && req.is("commit"):
		a, err = done("COMMIT", 'I')
	case over:
		a, err = refusal("25P02", "current transaction is committed or aborted", s.status)
	default:
		return answer{}, nil, false
	}
	return a, err, true
}

// readCommitted reports whether the transaction is.
func (s *session) readCommitted() bool {
	a, err := s.ask("SHOW transaction_isolation")
	return err == nil && bytes.Contains(a.wire, []byte("read committed"))
}

// release is where a transaction of CockroachDB commits.
func (s *session) release(fault Kind) (answer, error) {
	switch fault {
	case RetryAtCommit:
		s.p.dice.count(fault)
		return refusal("40001", restart, 'E')
	case UnknownRolledBack:
		if a, err := s.ask("ROLLBACK"); err != nil {
			return a, err
		}
		s.p.dice.count(fault)
		return refusal("40003", ambiguous, 'E')
	}
	a, err := s.ask("COMMIT")
	if err != nil {
		return a, err
	}
	if a.code != "" {
		a.wire[len(a.wire)-1], a.status = 'E', 'E'
		return a, nil
	}
	if fault == UnknownCommitted || fault == LostAfter {
		return s.after(fault, 'E')
	}
	return done("RELEASE", 'T')
}

// beginAgain begins the transaction again, with a new look at the data.
func (s *session) beginAgain() (answer, error) {
	texts := []string{s.begin, savepoint}
	if s.behind != 'I' {
		texts = append([]string{"ROLLBACK"}, texts...)
	}
	for _, text := range texts {
		if a, err := s.ask(text); err != nil || a.code != "" {
			return a, err
		}
	}
	return done("ROLLBACK", 'T')
}

// code is what CockroachDB says in the place of an error of PostgreSQL.
func (s *session) code(state string) string {
	if s.p.dice.Cockroach && state == "40P01" { // the loser of a deadlock is told to try again
		return "40001"
	}
	return state
}
