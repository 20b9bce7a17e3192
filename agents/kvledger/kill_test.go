package kvledger_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/agents"
	"duly.dev/duly/agents/kvledger"
)

const (
	// workerEnv says to the test binary that it is an agent's process: "again" or "once".
	workerEnv = "KVLEDGER_WORKER"
	// callTime is the time of one command. A claim whose process was killed holds for so long.
	callTime  = 500 * time.Millisecond
	killKeys  = 400
	killsMost = 24 // each costs the time of a command
)

// life is what is done with a key.
func life(k int) []string {
	return [][]string{{"do", "do"}, {"do", "undo", "do"}}[k%2]
}

func effect(word string, k int) string { return fmt.Sprintf("effects.%s.%d", word, k) }

// work is an agent's process: it has the life of each key that it is told of. Its effects are messages of a stream, that
// takes each as often as it comes.
func work(ctx context.Context, url string, once bool) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, "ledger")
	if err != nil {
		return err
	}
	ledger, err := kvledger.New(ctx, kv, kvledger.Options{AtMostOnce: once, Skew: time.Millisecond})
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		k, err := strconv.Atoi(in.Text())
		if err != nil {
			return err
		}
		var answers []string
		for _, word := range life(k) {
			answer, err := command(ctx, js, ledger, word, k)
			if err != nil {
				return fmt.Errorf("%s of %d: %w", word, k, err)
			}
			answers = append(answers, answer)
		}
		fmt.Println(strings.Join(answers, " "))
	}
	return nil
}

// command has a command answered, again until there is an answer.
func command(ctx context.Context, js jetstream.JetStream, ledger *kvledger.Ledger, word string, k int) (string, error) {
	publish := func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := js.Publish(ctx, effect(word, k), nil)
		return err
	}
	for end := time.Now().Add(patience); ; {
		try, cancel := context.WithTimeout(ctx, callTime)
		var err error
		key := fmt.Sprintf("task-%d/charge/0", k)
		if word == "do" {
			_, err = ledger.Do(try, key, func(ctx context.Context) ([]byte, error) { return []byte("1"), publish(ctx) })
		} else {
			err = ledger.Undo(try, key, func(ctx context.Context, _ []byte, _ bool) error { return publish(ctx) })
		}
		cancel()
		switch {
		case err == nil:
			return word, nil
		case errors.Is(err, agents.ErrGone):
			return "gone", nil
		case errors.Is(err, kvledger.ErrUnknown):
			return "unknown", nil
		case time.Now().After(end):
			return "", err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// worker is an agent's process that is killed now and then, and started again.
type worker struct {
	t         *testing.T
	url, mode string
	rng       *rand.Rand

	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   io.Closer
	out    *bufio.Scanner
	killed map[int]bool // while it had these keys
	kills  int
}

func (w *worker) start() {
	r, out, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	w.cmd = exec.Command(os.Args[0])
	w.cmd.Env = append(os.Environ(), workerEnv+"="+w.mode, "NATS_URL="+w.url)
	w.cmd.Stdout, w.cmd.Stderr = out, os.Stderr
	if w.in, err = w.cmd.StdinPipe(); err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	out.Close()
	w.pipe, w.out = r, bufio.NewScanner(r)
}

func (w *worker) stop() {
	w.in.Close()
	_ = w.cmd.Wait() // it may have been killed
	w.pipe.Close()
}

// live has the life of a key, again after each kill.
func (w *worker) live(k int) []string {
	for {
		var kill sync.WaitGroup
		if w.kills < killsMost && w.rng.IntN(8) == 0 {
			w.kills++
			w.killed[k] = true
			process, after := w.cmd.Process, time.Duration(w.rng.Int64N(int64(3*time.Millisecond)))
			kill.Go(func() {
				<-time.After(after)
				_ = process.Kill()
			})
		}
		_, err := fmt.Fprintln(w.in, k)
		ok := err == nil && w.out.Scan()
		kill.Wait()
		if ok {
			return strings.Fields(w.out.Text())
		}
		w.stop()
		if w.t.Context().Err() != nil {
			return nil
		}
		w.start()
	}
}

// Two processes of an agent have the same commands at the same time and are killed now and then. A key at which none was
// killed has one effect; at most once means that for every key; a do is never behind its undo.
//
// covers: S40, D6, inv7
func TestKilled(t *testing.T) {
	for _, mode := range []string{"again", "once"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := server(t)
			js := connect(t, url)
			bucket(t, js)
			stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EFFECTS", Subjects: []string{"effects.>"}})
			if err != nil {
				t.Fatal(err)
			}
			workers := make([]*worker, 2)
			for i := range workers {
				workers[i] = &worker{t: t, url: url, mode: mode, rng: rand.New(rand.NewPCG(uint64(i), 2)), killed: map[int]bool{}}
				workers[i].start()
				t.Cleanup(workers[i].stop)
			}
			unknown, twice := 0, 0
			for k := 0; k < killKeys && !t.Failed(); k++ {
				said := make([][]string, len(workers))
				var all sync.WaitGroup
				for i, w := range workers {
					all.Go(func() { said[i] = w.live(k) })
				}
				all.Wait()
				killed := workers[0].killed[k] || workers[1].killed[k]
				u, n := judge(t, stream, mode, k, killed, said)
				unknown += u
				if n > 1 {
					twice++
				}
			}
			kills := workers[0].kills + workers[1].kills
			if kills < killsMost {
				t.Errorf("%d kills", kills)
			}
			t.Logf("%d keys, %d kills, %d answers that it is not known, %d keys with more than one effect", killKeys, kills, unknown, twice)
		})
	}
}

// judge compares what was answered about a key with the effects that are there.
func judge(t *testing.T, stream jetstream.Stream, mode string, k int, killed bool, said [][]string) (unknown, dos int) {
	t.Helper()
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(fmt.Sprintf("effects.*.%d", k)))
	if err != nil {
		t.Fatal(err)
	}
	dos = int(info.State.Subjects[effect("do", k)])
	answered := false
	for _, answers := range said {
		for _, answer := range answers {
			if answer == "unknown" {
				unknown++
			}
			answered = answered || answer == "do"
		}
	}
	switch {
	case dos > 1 && (mode == "once" || !killed):
		t.Errorf("key %d: %d effects, killed %t", k, dos, killed)
	case answered && dos == 0:
		t.Errorf("key %d: answered %v without an effect", k, said)
	case unknown > 0 && (mode == "again" || !killed):
		t.Errorf("key %d: answered %v, killed %t", k, said, killed)
	case len(life(k)) == 3 && dos > 0:
		do, err := stream.GetLastMsgForSubject(t.Context(), effect("do", k))
		if err != nil {
			t.Fatal(err)
		}
		undo, err := stream.GetLastMsgForSubject(t.Context(), effect("undo", k))
		if err != nil || undo.Sequence < do.Sequence {
			t.Errorf("key %d: undo %v %v, do at %d", k, undo, err, do.Sequence)
		}
	}
	return unknown, dos
}
