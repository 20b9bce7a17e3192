package pgledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/internal/pgfault"
)

// lives are what a scheduler may have done to one key. Each ends with one effect or none, whatever is lost on the way.
var lives = []struct {
	words    string
	standing int
}{
	{"do do", 1}, {"do undo undo do", 0}, {"undo do undo", 0},
}

// live has one life of a key; it returns what the dos answered, and how many commits were not answered.
func live(ctx context.Context, ledger *pgledger.Ledger[pgxTx], key, words string) (answers []string, unknown int, err error) {
	a := account{ledger: ledger}
	for word := range strings.FieldsSeq(words) {
		call := a.do
		if word == "undo" {
			call = a.undo
		}
		answer, err := call(ctx, key)
		if err != nil {
			return answers, a.unknown, fmt.Errorf("%s of %s: %w", word, key, err)
		}
		if word == "do" {
			answers = append(answers, answer)
		}
	}
	return answers, a.unknown, nil
}

// The connection is lost at every request of every life, before the server has run it and after: no effect is doubled, none
// is lost, and a commit that was not answered is found.
//
// covers: S40, D6, inv7
func TestConnectionLostAtEveryStatement(t *testing.T) {
	t.Parallel()
	url, direct := database(t)
	withPgx(t, direct, pgledger.Options{})
	cuts, unknown := 0, 0
	for _, life := range lives {
		for _, after := range []bool{false, true} {
			for number := 1; ; number++ {
				faults := pgfault.Faults{CutAt: number}
				if after {
					faults = pgfault.Faults{CutAfter: number}
				}
				key := fmt.Sprintf("%s, after %t, %d", life.words, after, number)
				cut, n := lifeThrough(t, url, faults, key, life.words)
				unknown += n
				e := entries(t, direct)[key]
				if standing := e.done - e.undone; standing != life.standing || e.done > 1 || e.wrong > 0 {
					t.Errorf("%s: %+v, want %d that stand", key, e, life.standing)
				}
				if !cut { // the life has fewer requests
					break
				}
				cuts++
			}
		}
	}
	if cuts < 50 || unknown < len(lives) {
		t.Errorf("%d cuts, %d commits not answered: too few for every statement", cuts, unknown)
	}
	t.Logf("%d cuts, %d commits not answered", cuts, unknown)
}

// lifeThrough has one life through a proxy that cuts.
func lifeThrough(t *testing.T, url string, faults pgfault.Faults, key, words string) (cut bool, unknown int) {
	t.Helper()
	proxy, err := pgfault.Start(url, faults)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	}()
	pool, err := pgxpool.New(t.Context(), proxy.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ledger, err := pgledger.New(pool, pgledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answers, unknown, err := live(t.Context(), ledger, key, words)
	if err != nil {
		t.Error(err)
	}
	if words == "do do" && (answers[0] != answers[1] || answers[0] == gone) {
		t.Errorf("%s: answers %v, want the same twice", key, answers)
	}
	counts := proxy.Counts()
	return counts[pgfault.LostBefore]+counts[pgfault.LostAfter] > 0, unknown
}

// The database asks for another try, says that it does not know whether it has committed, is slow and loses connections, all
// the time, as PostgreSQL and as CockroachDB: the books are right all the same.
//
// covers: S40, D6, inv7
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, cockroach := range []bool{false, true} {
		t.Run(fmt.Sprintf("cockroach %t", cockroach), func(t *testing.T) {
			t.Parallel()
			url, direct := database(t)
			withPgx(t, direct, pgledger.Options{})
			proxy, err := pgfault.Start(url, pgfault.Faults{Seed: 7, Rate: 0.15, Cockroach: cockroach})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := proxy.Close(); err != nil {
					t.Error(err)
				}
			})
			ledger, err := pgledger.New(connect(t, proxy.URL()), pgledger.Options{CockroachDB: cockroach})
			if err != nil {
				t.Fatal(err)
			}
			const rounds = 60
			for i := range rounds {
				for _, life := range lives {
					if _, _, err := live(t.Context(), ledger, fmt.Sprint(life.words, " ", i), life.words); err != nil {
						t.Error(err)
					}
				}
			}
			all := entries(t, direct)
			for i := range rounds {
				for _, life := range lives {
					key := fmt.Sprint(life.words, " ", i)
					if e := all[key]; e.done-e.undone != life.standing || e.done > 1 || e.wrong > 0 {
						t.Errorf("%s: %+v, want %d that stand", key, e, life.standing)
					}
				}
			}
			counts := proxy.Counts()
			for _, kind := range pgfault.Kinds {
				if counts[kind] == 0 {
					t.Errorf("%s never happened", kind)
				}
			}
			t.Logf("%v", counts)
		})
	}
}
