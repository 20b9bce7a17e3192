package pgledger_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"duly.dev/duly/agents/pgledger"
	"duly.dev/duly/internal/pgfault"
)

type pgxTx = pgx.Tx

var killCalls = flag.Int("calls", 3000, "how many answered calls TestKilledAtEveryStatement makes")

// workerEnv says to the test binary that it is an agent's process.
const workerEnv = "PGLEDGER_WORKER"

// killLives are the lives that the keys have in turn.
var killLives = []string{"do do", "do undo do", "undo do", "do"}

func lifeOf(k int) string         { return killLives[k%len(killLives)] }
func killKey(k int) string        { return fmt.Sprintf("task-%d/charge/0", k) }
func killStanding(k int) bool     { return !strings.Contains(lifeOf(k), "undo") }
func killCallsOf(k int) int       { return len(strings.Fields(lifeOf(k))) }
func begins(k int, w string) bool { return strings.HasPrefix(lifeOf(k), w) }

// work is an agent's process: it has the life of each key that it is told of, and tells the answers of its dos.
func work(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	ledger, err := pgledger.New(pool, pgledger.Options{})
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		k, err := strconv.Atoi(in.Text())
		if err != nil {
			return err
		}
		answers, _, err := live(ctx, ledger, killKey(k), lifeOf(k))
		if err != nil {
			return err
		}
		fmt.Println(strings.Join(answers, " "))
	}
	return nil
}

// worker is an agent's process that is killed at one of its requests to the database, and started again.
type worker struct {
	t     *testing.T
	url   string // of its proxy
	every int    // requests between two kills, on average
	hits  *hits

	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	pipe io.Closer

	mu     sync.Mutex
	rng    *rand.Rand
	dead   chan struct{} // closed when the process has ended; nil: there is none to kill
	at     int           // the request at which it is killed
	after  bool          // the server has run it then
	killed int
}

// hits are the statements at which processes were killed.
type hits struct {
	mu sync.Mutex
	of map[string]int
}

func (w *worker) aim(from int) {
	w.at, w.after = from+1+w.rng.IntN(2*w.every), w.rng.IntN(2) == 0
}

// watch kills the process at a request.
func (w *worker) watch(number int, texts []string, ran bool) (cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number < w.at || ran != w.after || w.dead == nil {
		return false
	}
	if err := w.cmd.Process.Kill(); err != nil {
		return false // it has ended
	}
	<-w.dead
	w.dead = nil
	w.killed++
	w.hits.note(texts, ran)
	w.aim(number)
	return true
}

func (h *hits) note(texts []string, ran bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := "prepare"
	if len(texts) > 0 {
		text = strings.Join(strings.Fields(texts[0])[:1], " ")
	}
	h.of[fmt.Sprintf("%s, ran %t", strings.ToLower(text), ran)]++
}

// start starts the process.
func (w *worker) start() {
	r, out, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1", "DATABASE_URL="+w.url)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	out.Close()
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_ = cmd.Wait() // it is killed
	}()
	w.in, w.out, w.pipe = in, bufio.NewScanner(r), r
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cmd, w.dead = cmd, dead
}

// stop lets the process end and waits for that.
func (w *worker) stop() {
	w.in.Close()
	w.mu.Lock()
	dead := w.dead
	w.dead = nil
	w.mu.Unlock()
	if dead != nil {
		<-dead
	}
	w.pipe.Close()
}

// live has the life of a key, again after each kill, until it is told the answers.
func (w *worker) live(k int) []string {
	for {
		if _, err := fmt.Fprintln(w.in, k); err == nil && w.out.Scan() {
			return strings.Fields(w.out.Text())
		}
		if w.t.Context().Err() != nil {
			return nil
		}
		w.stop()
		w.start()
	}
}

// Two processes of an agent have the same commands at the same time, and are killed at any statement, before the server has
// run it and after: no effect is doubled, and none is lost.
//
// covers: S40, D6, inv7
func TestKilledAtEveryStatement(t *testing.T) {
	url, direct := database(t)
	withPgx(t, direct, pgledger.Options{})
	h := &hits{of: map[string]int{}}
	workers := make([]*worker, 2)
	for i := range workers {
		w := &worker{t: t, every: max(200, *killCalls/100), hits: h, rng: rand.New(rand.NewPCG(uint64(i), 1))}
		w.aim(0)
		proxy, err := pgfault.Start(url, pgfault.Faults{Watch: w.watch})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := proxy.Close(); err != nil {
				t.Error(err)
			}
		})
		w.url = proxy.URL()
		w.start()
		t.Cleanup(w.stop)
		workers[i] = w
	}
	began, calls := time.Now(), 0
	answers := map[int][]string{}
	for k := 0; calls < *killCalls && !t.Failed(); k++ {
		said := make([][]string, len(workers))
		var all sync.WaitGroup
		for i, w := range workers {
			all.Go(func() { said[i] = w.live(k) })
		}
		all.Wait()
		answers[k] = slices.Concat(said...)
		calls += killCallsOf(k) * len(workers)
	}
	took := time.Since(began)
	doubled, lost := judge(t, direct, answers)
	kills := workers[0].killed + workers[1].killed
	if doubled+lost > 0 || kills < 20 {
		t.Errorf("%d doubled, %d lost, %d kills", doubled, lost, kills)
	}
	for _, statement := range []string{"begin", "insert", "select", "update", "commit"} {
		for _, ran := range []bool{false, true} {
			if n := h.of[fmt.Sprintf("%s, ran %t", statement, ran)]; n == 0 && *killCalls >= 20_000 {
				t.Errorf("no process was killed at %s, ran %t", statement, ran)
			}
		}
	}
	t.Logf("%d calls on %d keys in %v, %d kills: %d doubled, %d lost; killed at %v", calls, len(answers), took.Round(time.Second), kills, doubled, lost, h.of)
}

// judge compares what the processes were told with what is there.
func judge(t *testing.T, pool *pgxpool.Pool, answers map[int][]string) (doubled, lost int) {
	t.Helper()
	all := entries(t, pool)
	for k, said := range answers {
		e := all[killKey(k)]
		if e.done > 1 || e.undone > e.done || e.wrong > 0 {
			doubled++
			t.Errorf("key %d (%s): %+v", k, lifeOf(k), e)
		}
		if killStanding(k) != (e.done-e.undone == 1) || begins(k, "undo") && e.done > 0 {
			lost++
			t.Errorf("key %d (%s): %+v", k, lifeOf(k), e)
		}
		for _, answer := range said {
			if answer != fmt.Sprint(e.id) && (killStanding(k) || answer != gone) {
				t.Errorf("key %d (%s): answered %s, %+v", k, lifeOf(k), answer, e)
			}
		}
	}
	return doubled, lost
}
