package kvledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/agents/kvledger"
	"duly.dev/duly/agents/ledgertest"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/sim"
)

// Both kinds keep the contract of ledgers.
//
// covers: S40, D6, inv7
func TestContract(t *testing.T) {
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		kv := bucket(t, connect(t, server(t)))
		ledgertest.Run(t, ledgertest.Subject{Ledger: open(t, kv, kvledger.Options{}), Service: &counted{}})
	})
	t.Run("at most once", func(t *testing.T) {
		t.Parallel()
		kv := bucket(t, connect(t, server(t)))
		ledgertest.Run(t, ledgertest.Subject{
			Ledger: open(t, kv, kvledger.Options{AtMostOnce: true}), Service: &counted{},
			Failure: agents.Refuse(429, errors.New("too much in flight")), Stays: true,
		})
	})
}

// unclocked gives work the simulator's context in place of one by the real clock, and keys a beginning of their own.
type unclocked struct {
	*kvledger.Ledger
	name string
}

func (u unclocked) Do(ctx context.Context, key string, work func(context.Context) ([]byte, error)) ([]byte, error) {
	return u.Ledger.Do(context.Background(), u.name+key, func(context.Context) ([]byte, error) { return work(ctx) })
}

func (u unclocked) Undo(ctx context.Context, key string, work func(context.Context, []byte, bool) error) error {
	return u.Ledger.Undo(context.Background(), u.name+key, func(_ context.Context, result []byte, known bool) error {
		return work(ctx, result, known)
	})
}

// The simulator's agents crash, hang, answer late and refuse; with this ledger, too, its books agree with what every task
// ended as.
//
// covers: S40, inv7
func TestSimulated(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	for seed := range uint64(16) {
		cfg := sim.Draw(seed)
		cfg.Graph = seed%3 == 0
		cfg.Ledger = unclocked{open(t, kv, kvledger.Options{Lease: time.Hour}), fmt.Sprint(seed, ":")}
		if err := sim.New(cfg).Run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	status, err := kv.Status(t.Context())
	if err != nil || status.Values() < 100 {
		t.Errorf("%v %v: the simulator hardly used it", status, err)
	}
}

type Order struct{ Cents int }

type Payment struct{ Number int }

// TestHandlers: handlers that would do everything twice are safe behind the ledger.
//
// covers: S40, D6, inv7
func TestHandlers(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	charge := duly.NewStep[Order, Payment]("charge", "payment.charge")
	agent, err := duly.NewAgent(nil, duly.WithLedger(open(t, kv, kvledger.Options{AtMostOnce: true})))
	if err != nil {
		t.Fatal(err)
	}
	service := &counted{}
	var number atomic.Int64
	if err := charge.Serve(agent,
		func(ctx context.Context, call duly.Call[Order]) (Payment, error) {
			return Payment{int(number.Add(1))}, service.Do(ctx, call.Key)
		},
		func(ctx context.Context, undo duly.Undo[Order, Payment]) error {
			if n, err := service.Standing(undo.Key); n == 0 {
				return err
			}
			return service.Undo(ctx, undo.Key)
		}); err != nil {
		t.Fatal(err)
	}
	dulytest.RunTwice(t, agent, charge, Order{Cents: 1999}, dulytest.Effects(func(key string) int {
		n, _ := service.Standing(key)
		return n
	}))
}

// stuck is a do or undo whose process stands still until its end is closed.
type stuck struct {
	end chan struct{}
	all sync.WaitGroup
	err error
}

func (s *stuck) release() error {
	close(s.end)
	s.all.Wait()
	return s.err
}

// shortLease is what a test waits for, and what a busy machine has for the call that begins in it.
const shortLease = 2 * time.Second

// stand begins a do that stands still past its time, and does not look at its context.
func stand(t *testing.T, ledger *kvledger.Ledger, key string) *stuck {
	t.Helper()
	s := &stuck{end: make(chan struct{})}
	begun := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), shortLease)
	s.all.Go(func() {
		defer cancel()
		_, s.err = ledger.Do(ctx, key, func(context.Context) ([]byte, error) {
			close(begun)
			<-s.end
			return []byte(`"of the one that stood still"`), nil
		})
	})
	<-begun
	return s
}

// until calls again while the key is at work elsewhere.
func until(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := call(ctx)
		if !errors.Is(err, agents.ErrInProgress) || ctx.Err() != nil {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A claim whose holder stands still is taken over when its time is over, and the holder finds that out before it records.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	js := connect(t, server(t))
	kv := bucket(t, js)
	ledger := open(t, kv, kvledger.Options{Skew: time.Millisecond})
	began, early := time.Now(), 0
	holder := stand(t, ledger, "k")
	var result []byte
	err := until(t, func(ctx context.Context) (err error) {
		if p, err := ledger.Probe(ctx, "k"); err == nil && p.Outcome == core.ProbeInProgress {
			early++
		}
		result, err = ledger.Do(ctx, "k", func(context.Context) ([]byte, error) { return []byte(`"of the next"`), nil })
		return err
	})
	if err != nil || string(result) != `"of the next"` {
		t.Errorf("%s %v", result, err)
	}
	if early == 0 || time.Since(began) < shortLease/2 {
		t.Errorf("taken over after %v, while it was said to be at work %d times", time.Since(began), early)
	}
	if err := holder.release(); !errors.Is(err, kvledger.ErrLost) {
		t.Errorf("the one that stood still: %v, want ErrLost", err)
	}
	if p, err := ledger.Probe(t.Context(), "k"); err != nil || string(p.Result) != `"of the next"` {
		t.Errorf("%s %v", p.Result, err)
	}
}

// While clocks may be apart a claim is not taken over, also when its time is over by one of them.
func TestClaimHoldsWhileClocksMayDiffer(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	ledger := open(t, kv, kvledger.Options{Skew: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), shortLease)
	defer cancel()
	_, err := ledger.Do(ctx, "k", func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		_, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return nil, errors.New("another works on the key") })
		if !errors.Is(err, agents.ErrInProgress) {
			t.Errorf("%v, want ErrInProgress", err)
		}
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A claim holds as long as its command has time, however short claims without a deadline are.
func TestClaimHoldsAsLongAsItsCommand(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	ledger := open(t, kv, kvledger.Options{Lease: time.Millisecond, Skew: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := ledger.Do(ctx, "k", func(ctx context.Context) ([]byte, error) {
		for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
			_, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return nil, errors.New("another works on the key") })
			if !errors.Is(err, agents.ErrInProgress) {
				t.Fatalf("%v, want ErrInProgress", err)
			}
		}
		return nil, ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

// slow is a bucket whose answers to new keys take long.
type slow struct {
	jetstream.KeyValue
	by time.Duration
}

func (s slow) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := s.KeyValue.Create(ctx, key, value, o...)
	<-time.After(s.by)
	return revision, err
}

// The work of a claim ends with it, however late the claim was answered: another may have the key then.
func TestWorkEndsWithItsClaim(t *testing.T) {
	t.Parallel()
	const lease = 20 * time.Millisecond
	ledger := open(t, slow{bucket(t, connect(t, server(t))), 2 * lease}, kvledger.Options{Lease: lease})
	_, err := ledger.Do(t.Context(), "k", func(ctx context.Context) ([]byte, error) { return nil, ctx.Err() })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the claim", err)
	}
}

// A bucket keeps its keys as long as it is told to.
func TestBucketKeepsAsLongAsItIsTold(t *testing.T) {
	t.Parallel()
	js := connect(t, server(t))
	for _, keep := range []time.Duration{72 * time.Hour, 5 * time.Hour} {
		kv, err := kvledger.Create(t.Context(), js, kvledger.Bucket{Name: "ledger", Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		if status, err := kv.Status(t.Context()); err != nil || status.TTL() != keep {
			t.Errorf("it keeps keys for %v, %v, want %v", status.TTL(), err, keep)
		}
	}
}

// At most once: where it is not known whether a do took effect, none works again; an undo is told that it is not known.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	ledger := open(t, kv, kvledger.Options{AtMostOnce: true, Skew: time.Millisecond})
	holder := stand(t, ledger, "stands still")
	dos := 0
	do := func(key string, fail error) error {
		return until(t, func(ctx context.Context) error {
			_, err := ledger.Do(ctx, key, func(context.Context) ([]byte, error) {
				dos++
				return nil, fail
			})
			return err
		})
	}
	if err := do("stands still", nil); !errors.Is(err, kvledger.ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	unclear := errors.New("the line went dead")
	if err := do("unclear", unclear); !errors.Is(err, unclear) {
		t.Error(err)
	}
	if err := do("unclear", nil); !errors.Is(err, kvledger.ErrUnknown) || !strings.HasSuffix(err.Error(), "it said: the line went dead") || dos != 1 {
		t.Errorf("%v, want ErrUnknown with what it said; %d works", err, dos)
	}
	for _, key := range []string{"stands still", "unclear"} {
		if _, err := ledger.Probe(t.Context(), key); !errors.Is(err, agents.ErrNotKnown) {
			t.Errorf("probe of %s: %v", key, err)
		}
		err := ledger.Undo(t.Context(), key, func(_ context.Context, _ []byte, known bool) error {
			if known {
				t.Errorf("%s is known", key)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := holder.release(); !errors.Is(err, kvledger.ErrLost) {
		t.Errorf("the one that stood still: %v, want ErrLost", err)
	}
	for _, key := range []string{"stands still", "unclear"} {
		if err := do(key, nil); !errors.Is(err, agents.ErrGone) {
			t.Errorf("do of %s after its undo: %v", key, err)
		}
	}
	if dos != 1 {
		t.Errorf("%d works", dos)
	}
}

// At most once: only a code of 400 to 499 says that there is no effect. A failure for good may have had one, and so may what
// an agent of a service gives a code of its own.
func TestAtMostOnceByCodes(t *testing.T) {
	t.Parallel()
	ledger := open(t, bucket(t, connect(t, server(t))), kvledger.Options{AtMostOnce: true})
	for name, x := range map[string]struct {
		fail  error
		again bool
	}{
		"refused":   {duly.Refuse(errors.New("no such card")), true},
		"too many":  {duly.RefuseCode(429, errors.New("too many")), true},
		"failed":    {duly.Fail(errors.New("the receipt cannot be read")), false},
		"wrapped":   {fmt.Errorf("charge: %w", duly.Fail(errors.New("the receipt cannot be read"))), false},
		"timed-out": {&agents.Error{Code: 504, Err: errors.New("no answer in time")}, false},
		"no-code":   {&agents.Error{Err: errors.New("no code")}, false},
		"nil":       {(*agents.Error)(nil), false},
	} {
		works := 0
		do := func(fail error) error {
			_, err := ledger.Do(t.Context(), name, func(context.Context) ([]byte, error) {
				works++
				return nil, fail
			})
			return err
		}
		if err := do(x.fail); !errors.Is(err, x.fail) {
			t.Errorf("%s: %v", name, err)
		}
		if err := do(nil); (err == nil) != x.again || !x.again && !errors.Is(err, kvledger.ErrUnknown) || (works == 2) != x.again {
			t.Errorf("%s, and a do again: %v, %d works", name, err, works)
		}
	}
}

// An undo whose process ended is taken over, too, with what is known of the do; and its tombstone stays meanwhile.
func TestUndoIsTakenOver(t *testing.T) {
	t.Parallel()
	kv := bucket(t, connect(t, server(t)))
	ledger := open(t, kv, kvledger.Options{Skew: time.Millisecond})
	if _, err := ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return []byte("7"), nil }); err != nil {
		t.Fatal(err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	var holder sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), shortLease)
	defer cancel()
	holder.Go(func() {
		err := ledger.Undo(ctx, "k", func(context.Context, []byte, bool) error {
			close(begun)
			<-end
			return nil
		})
		if !errors.Is(err, kvledger.ErrLost) {
			t.Errorf("the one that stood still: %v, want ErrLost", err)
		}
	})
	<-begun
	if _, err := ledger.Do(t.Context(), "k", nil); !errors.Is(err, agents.ErrGone) {
		t.Errorf("do: %v", err)
	}
	err := until(t, func(ctx context.Context) error {
		return ledger.Undo(ctx, "k", func(_ context.Context, result []byte, known bool) error {
			if !known || string(result) != "7" {
				t.Errorf("known %t, %s", known, result)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	close(end)
	holder.Wait()
}

// lossy loses the answers to writes that the bucket has made.
type lossy struct {
	jetstream.KeyValue
	loses atomic.Int32 // how many more
}

var errLine = errors.New("the line went dead")

func (l *lossy) lose(revision uint64, err error) (uint64, error) {
	if err == nil && l.loses.Add(-1) >= 0 {
		return 0, errLine
	}
	return revision, err
}

func (l *lossy) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	return l.lose(l.KeyValue.Create(ctx, key, value, o...))
}

func (l *lossy) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.lose(l.KeyValue.Update(ctx, key, value, revision))
}

// A write whose answer is lost is found.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	kv := &lossy{KeyValue: bucket(t, connect(t, server(t)))}
	for _, o := range []kvledger.Options{{}, {AtMostOnce: true}} {
		ledger, key := open(t, kv, o), fmt.Sprintf("at most once %t", o.AtMostOnce)
		dos, undos := 0, 0
		for range 2 {
			kv.loses.Store(2)
			got, err := ledger.Do(t.Context(), key, func(context.Context) ([]byte, error) {
				dos++
				return fmt.Append(nil, dos), nil
			})
			if err != nil || string(got) != "1" {
				t.Errorf("do: %s %v", got, err)
			}
		}
		for range 2 {
			kv.loses.Store(2)
			if err := ledger.Undo(t.Context(), key, func(_ context.Context, got []byte, known bool) error {
				undos++
				if !known || string(got) != "1" {
					t.Errorf("undo: %s, known %t", got, known)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		if dos != 1 || undos != 1 {
			t.Errorf("%d dos, %d undos", dos, undos)
		}
	}
}

// What cannot be is refused with its limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	js := connect(t, server(t))
	kv := bucket(t, js)
	for _, o := range []kvledger.Options{
		{ResultMax: -1}, {ResultMax: kvledger.ResultMaxMost + 1}, {Lease: -1}, {Lease: 25 * time.Hour}, {Skew: -1}, {Skew: 2 * time.Hour},
	} {
		if _, err := kvledger.New(t.Context(), kv, o); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, b := range []kvledger.Bucket{{Name: "b"}, {Name: "b", Keep: time.Minute}, {Name: "b", Keep: time.Hour, BytesMax: -1}} {
		if _, err := kvledger.Create(t.Context(), js, b); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%+v: %v", b, err)
		}
	}
	forever, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "forever"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kvledger.New(t.Context(), forever, kvledger.Options{}); err == nil || !strings.Contains(err.Error(), "want 1h0m0s or more") {
		t.Errorf("a bucket without a bound: %v", err)
	}
	ledger := open(t, kv, kvledger.Options{ResultMax: 10})
	for _, key := range []string{"", strings.Repeat("k", kvledger.KeyMax+1)} {
		if _, err := ledger.Do(t.Context(), key, nil); err == nil || !strings.Contains(err.Error(), "want ") {
			t.Errorf("key %.20q: %v", key, err)
		}
	}
	_, err = ledger.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return make([]byte, 11), nil })
	if err == nil || !strings.Contains(err.Error(), "11 bytes, the limit is 10") {
		t.Errorf("result: %v", err)
	}
	if _, err := kv.Put(t.Context(), "foreign", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Do(t.Context(), "foreign", nil); err == nil || !strings.Contains(err.Error(), "is not a ledger's") {
		t.Errorf("a value of another: %v", err)
	}
}

// A bucket without room refuses new keys, and none is forgotten for them.
//
// covers: E16
func TestFullBucket(t *testing.T) {
	t.Parallel()
	kv, err := kvledger.Create(t.Context(), connect(t, server(t)), kvledger.Bucket{Name: "small", Keep: time.Hour, BytesMax: 4096})
	if err != nil {
		t.Fatal(err)
	}
	ledger := open(t, kv, kvledger.Options{})
	done := 0
	for ; done < 1000; done++ {
		if _, err = ledger.Do(t.Context(), fmt.Sprint("k", done), func(context.Context) ([]byte, error) { return []byte("1"), nil }); err != nil {
			break
		}
	}
	if !errors.Is(err, agents.ErrLedgerFull) || done < 5 {
		t.Errorf("after %d keys: %v", done, err)
	}
	for i := range done {
		if got, err := ledger.Do(t.Context(), fmt.Sprint("k", i), nil); err != nil || string(got) != "1" {
			t.Errorf("key %d: %s %v", i, got, err)
		}
	}
}
