package ground

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a sink and a thing to be probed.
type world struct {
	t  *testing.T
	g  *Ground
	mu sync.Mutex

	alerts []Alert
	at     []time.Duration // of the alerts, since the beginning
	began  time.Time
	err    error
	slow   time.Duration // how long it takes to tell
}

func (w *world) Alert(a Alert) {
	<-time.After(w.slow)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alerts, w.at = append(w.alerts, a), append(w.at, time.Since(w.began))
}

func (w *world) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *world) probe(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// told is what was told since the last call, as "0s begin a".
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for i, a := range w.alerts {
		all = append(all, fmt.Sprintf("%v %s %s", w.at[i], a.Phase, a.Name+a.Key))
	}
	w.alerts, w.at = nil, nil
	return all
}

func (w *world) want(want ...string) {
	w.t.Helper()
	if got := w.told(); !slices.Equal(got, want) {
		w.t.Errorf("told %q, want %q", got, want)
	}
}

func (w *world) names(of []Trouble) string {
	var all []string
	for _, t := range of {
		all = append(all, t.Name+t.Key)
	}
	return strings.Join(all, " ")
}

func (w *world) wantReady(want string) {
	w.t.Helper()
	if got := w.names(w.g.Ready()); got != want {
		w.t.Errorf("not ready because of %q, want %q", got, want)
	}
}

// in runs a test with a ground of these conditions in a time of its own.
func in(t *testing.T, do func(w *world, reporters []Reporter), conditions ...func(*world) Condition) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now()}
		w.g = New(w)
		var reporters []Reporter
		for _, c := range conditions {
			reporters = append(reporters, w.g.Add(c(w)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.g.Run(ctx) })
		synctest.Wait()
		do(w, reporters)
		cancel()
		wg.Wait()
	})
}

func plain(c Condition) func(*world) Condition { return func(*world) Condition { return c } }

var errAway = errors.New("away")

// TestTroubleIsToldOnce: one alert after the grace, one when it is over, with how long it was; ready says the same.
func TestTroubleIsToldOnce(t *testing.T) {
	in(t, func(w *world, _ []Reporter) {
		w.after(5 * time.Second) // probes are a second apart, the next one is at 6s
		w.set(errAway)
		w.after(time.Second)
		w.wantReady("")
		w.after(DefaultGrace + time.Millisecond)
		w.wantReady("a")
		w.after(time.Hour)
		w.mu.Lock()
		first := w.alerts[0]
		w.mu.Unlock()
		w.want("16s begin a")
		if first.Text != "a is away" || first.Error != "away" || first.For != DefaultGrace || first.Times != 1 {
			t.Errorf("alert %+v", first)
		}
		w.set(nil)
		w.after(DefaultEvery)
		w.wantReady("") // at once, though the end is told only after a while
		w.after(settle)
		w.mu.Lock()
		last := w.alerts[0]
		w.mu.Unlock()
		if got := len(w.told()); got != 1 || last.Phase != Ends || last.Text != "a is back" || last.For < time.Hour || last.For > time.Hour+time.Minute {
			t.Errorf("%d alerts, %+v", got, last)
		}
		w.after(time.Hour)
		w.want()
		if n := len(w.g.conditions[0].states); n != 0 {
			t.Errorf("%d states are kept of what is over", n)
		}
	}, func(w *world) Condition {
		return Condition{Name: "a", Begin: "a is away", End: "a is back", Probe: w.probe, Consequence: NotReady}
	})
}

// TestShortTroubleIsNotTold: what is over within its grace makes no line.
func TestShortTroubleIsNotTold(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		for range 3 {
			r[0].Report(errAway)
			w.after(9 * time.Second)
			r[0].Report(nil)
			w.after(settle + time.Second)
		}
		w.want()
	}, plain(Condition{Name: "a", Consequence: NotReady}))
}

// TestFlappingIsFolded: what comes back at once is one trouble that says how often, and two lines about one cause are
// never less than a second apart.
func TestFlappingIsFolded(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		for range 100 { // 20 s
			r[0].Report(errAway)
			w.after(100 * time.Millisecond)
			r[0].Report(nil)
			w.after(100 * time.Millisecond)
		}
		w.want("0s begin a")
		w.after(settle)
		w.mu.Lock()
		end := w.alerts[0]
		w.mu.Unlock()
		w.want("21.9s end a")
		if end.Times != 100 || end.For != 19900*time.Millisecond {
			t.Errorf("%d times in %v, want 100 in 19.9s", end.Times, end.For)
		}
		r[0].Report(errAway)
		w.after(10 * time.Second)
		w.want("22.9s begin a") // a second after the end was told
	}, plain(Condition{Name: "a", Grace: AtOnce}))
}

// TestFlappingPassesTheGrace: a trouble that is interrupted for less than settle is told after its grace.
func TestFlappingPassesTheGrace(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		for range 6 {
			r[0].Report(errAway)
			w.after(1900 * time.Millisecond)
			r[0].Report(nil)
			w.after(100 * time.Millisecond)
		}
		r[0].Report(errAway)
		w.after(time.Millisecond)
		w.want("10.001s begin a")
	}, plain(Condition{Name: "a", Grace: DefaultGrace + time.Millisecond}))
}

// TestProbesDoNotHinderEachOther: one that hangs is a trouble, and neither the others nor the end wait for it longer
// than it minds its context.
func TestProbesDoNotHinderEachOther(t *testing.T) {
	in(t, func(w *world, _ []Reporter) {
		w.after(20 * time.Second)
		w.want("0s begin a", "5s begin hangs", "5s begin panics")
		for _, trouble := range w.g.Ready() {
			want := map[string]string{"a": "away", "hangs": "no answer for 2s", "panics": "the probe panicked: oh"}[trouble.Name]
			if trouble.Reason.Error() != want {
				t.Errorf("%s: %v, want %s", trouble.Name, trouble.Reason, want)
			}
		}
	},
		func(*world) Condition {
			return Condition{Name: "hangs", Grace: 5 * time.Second, Consequence: NotReady, Probe: func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(time.Minute) // it minds the end of its context late
				return nil
			}}
		},
		plain(Condition{Name: "panics", Grace: 5 * time.Second, Consequence: NotReady, Probe: func(context.Context) error { panic("oh") }}),
		plain(Condition{Name: "a", Grace: AtOnce, Consequence: NotReady, Probe: func(context.Context) error { return errAway }}))
}

// TestConsequences: what is only told leaves the node ready, what is fatal ends its life, also where only this trouble
// is fatal.
func TestConsequences(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		for _, one := range r {
			one.Report(errAway)
		}
		w.after(time.Millisecond)
		w.wantReady("b c")
		if got := w.names(w.g.Live()); got != "c" {
			t.Errorf("fatal: %q, want c", got)
		}
		r[1].Found(Found{Err: errAway, Fatal: true})
		if got := w.names(w.g.Live()); got != "b c" {
			t.Errorf("fatal: %q, want b c", got)
		}
		if got := w.names(w.g.Troubles()); got != "a b c" {
			t.Errorf("troubles: %q", got)
		}
	},
		plain(Condition{Name: "a", Grace: AtOnce}),
		plain(Condition{Name: "b", Grace: AtOnce, Consequence: NotReady}),
		plain(Condition{Name: "c", Grace: AtOnce, Consequence: Fatal}))
}

// TestGracesDiffer: a node may be not ready before an operator is told.
func TestGracesDiffer(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		r[0].Report(errAway)
		w.wantReady("a")
		w.after(9 * time.Second)
		w.want()
		w.after(2 * time.Second)
		w.want("10s begin a")
	}, plain(Condition{Name: "a", ReadyAfter: AtOnce, Consequence: NotReady}))
}

// TestProven: a node is not ready before a condition has been well once, without any grace.
func TestProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), err: errAway}
		w.g = New(w)
		w.g.Add(Condition{Name: "a", Probe: w.probe, Consequence: NotReady, Proven: true})
		if got := w.g.Ready(); len(got) != 1 || !errors.Is(got[0].Reason, errUnknown) {
			t.Fatalf("before the first probe: %+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.g.Run(ctx) })
		synctest.Wait()
		w.wantReady("a")
		w.set(nil)
		w.after(DefaultEvery)
		w.wantReady("")
		w.set(errAway)
		w.after(DefaultEvery)
		w.wantReady("") // now it has its grace
		cancel()
		wg.Wait()
	})
}

// TestEachResource: the resources of a condition have their own lines; what is not named any more is well.
func TestEachResource(t *testing.T) {
	var mu sync.Mutex
	found := []Found{{Key: "/x", Err: errAway}, {Key: "/y", Err: errAway}}
	in(t, func(w *world, _ []Reporter) {
		w.after(time.Millisecond)
		w.want("0s begin s/x", "0s begin s/y")
		mu.Lock()
		found = found[1:]
		mu.Unlock()
		w.after(5 * time.Second)
		w.want("3s end s/x")
		w.wantReady("s/y")
		mu.Lock()
		found = nil
		for i := range 10 * keysMax {
			found = append(found, Found{Key: fmt.Sprintf("/%d", i), Err: errAway})
		}
		mu.Unlock()
		w.after(5 * time.Second)
		got := w.g.Ready()
		if n := len(got); n < keysMax || n > keysMax+1 || !slices.ContainsFunc(got, func(t Trouble) bool { return t.Key == keyOthers }) {
			t.Errorf("%d resources, want %d and the others", n, keysMax)
		}
	}, plain(Condition{Name: "s", Grace: AtOnce, Consequence: NotReady, Each: func(context.Context) []Found {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(found)
	}}))
}

// TestUnknown: a probe that cannot look neither begins a trouble nor ends one.
func TestUnknown(t *testing.T) {
	in(t, func(w *world, _ []Reporter) {
		w.set(ErrUnknown)
		w.after(5 * time.Second)
		w.want()
		w.wantReady("")
		w.set(errAway)
		w.after(5 * time.Second)
		w.want("6s begin s")
		w.set(fmt.Errorf("breakers: %w", ErrUnknown))
		w.after(5 * time.Second)
		w.want()
		w.wantReady("s")
		w.set(nil)
		w.after(5 * time.Second)
		w.want("18s end s")
	}, func(w *world) Condition {
		return Condition{Name: "s", Grace: AtOnce, Consequence: NotReady, Probe: w.probe}
	})
}

// TestSinceOfTheSource: a source that knows when its trouble began is believed, but not about the future.
func TestSinceOfTheSource(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		r[0].Found(Found{Err: errAway, Since: time.Now().Add(-time.Minute)})
		r[1].Found(Found{Err: errAway, Since: time.Now().Add(time.Minute)})
		w.after(time.Millisecond)
		w.want("0s begin a")
		w.after(DefaultGrace)
		w.want("10s begin b")
	}, plain(Condition{Name: "a"}), plain(Condition{Name: "b"}))
}

// TestEventsAreFolded: a storm of events of one name is a line a second, which says how many there were.
func TestEventsAreFolded(t *testing.T) {
	in(t, func(w *world, _ []Reporter) {
		for range 30 {
			w.g.Once(Alert{Name: "e", Text: "it happened"})
			w.after(70 * time.Millisecond)
		}
		w.mu.Lock()
		times := 0
		for _, a := range w.alerts {
			times += max(1, a.Times)
		}
		w.mu.Unlock()
		w.want("0s once e", "1s once e", "2s once e")
		if times != 29 {
			t.Errorf("%d events told, want 29 and one held back", times)
		}
		w.after(2 * time.Second)
		w.want("3s once e")
		if n := len(w.g.events); n != 0 {
			t.Errorf("%d names kept", n)
		}
	})
}

// TestGapsBeginWhenItIsTold: where a line takes its time, the next one keeps its distance from when that one was written.
func TestGapsBeginWhenItIsTold(t *testing.T) {
	in(t, func(w *world, r []Reporter) {
		w.slow = 300 * time.Millisecond
		for range 3 {
			w.g.Once(Alert{Name: "e", Text: "it happened"})
		}
		w.after(3 * time.Second)
		w.want("300ms once e", "1.6s once e")

		r[0].Report(errAway)
		w.after(400 * time.Millisecond)
		r[0].Report(nil)
		w.after(settle + 400*time.Millisecond)
		w.want("3.6s begin a", "6s end a")
		r[0].Report(errAway)
		w.after(2 * time.Second)
		w.want("7.3s begin a")
	}, plain(Condition{Name: "a", Grace: AtOnce}))
}

// TestNamesAreUnique: a second condition of a name would share its readiness.
func TestNamesAreUnique(t *testing.T) {
	g := New(Sinks{})
	g.Add(Condition{Name: "a"})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g.Add(Condition{Name: "a"})
}

// TestLogSink: one line for each alert, and its level says whether it matters.
func TestLogSink(t *testing.T) {
	var buf bytes.Buffer
	sink := Sinks{LogSink{slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "since" {
			return slog.Attr{}
		}
		return a
	}}))}}
	sink.Alert(Alert{Name: "database", Text: "the database is away", Phase: Begins, For: 10 * time.Second, Times: 1, Error: "refused", Consequence: NotReady})
	sink.Alert(Alert{Name: "clock", Text: "the clock is wrong", Phase: Begins, Times: 3})
	sink.Alert(Alert{Name: "stream", Key: "X", Text: "it is there again", Phase: Ends, For: time.Minute, Times: 1})
	New(sink).Once(Alert{Name: "rewound", Text: "it went back", Attrs: []slog.Attr{slog.Int("partition", 3)}})
	want := `level=ERROR msg="ALERT: the database is away" alert=begin name=database for=10s error=refused
level=WARN msg="ALERT: the clock is wrong" alert=begin name=clock for=0s times=3
level=INFO msg="it is there again" alert=end name=stream key=X for=1m0s
level=ERROR msg="ALERT: it went back" alert=once name=rewound partition=3
`
	if buf.String() != want {
		t.Errorf("got\n%s\nwant\n%s", buf.String(), want)
	}
}

// veil hides one word.
type veil struct{}

func (veil) Text(s string) string { return strings.ReplaceAll(s, "s3cret", "xxxxx") }
func (v veil) Error(err error) error {
	return errors.New(v.Text(err.Error()))
}
func (v veil) Attr(a slog.Attr) slog.Attr { return slog.String(a.Key, v.Text(a.Value.String())) }

// TestNothingHiddenIsTold: what is to be hidden is in no alert, and in nothing that readiness reads.
//
// covers: C12
func TestNothingHiddenIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &world{}
		g := New(told)
		g.Hide(veil{})
		g.Add(Condition{Name: "one", Begin: "it is not", End: "it is", Grace: AtOnce, Consequence: Fatal}).Report(errors.New("no s3cret"))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { g.Run(ctx) })
		g.Once(Alert{Name: "two", Text: "a s3cret", Error: "s3cret", Attrs: []slog.Attr{slog.String("was", "s3cret")}})
		g.Tell(Alert{Name: "three", Text: "s3cret", Attrs: []slog.Attr{slog.Any("error", errors.New("s3cret"))}})
		synctest.Wait()
		<-time.After(2 * time.Second)
		synctest.Wait()
		cancel()
		wg.Wait()
		if n := len(told.alerts); n != 3 {
			t.Errorf("%d alerts, want 3", n)
		}
		for _, what := range []any{told.alerts, g.Ready()[0].Reason, g.Live()[0].Reason, g.Troubles()[0].Reason} {
			if text := fmt.Sprintf("%+v", what); strings.Contains(text, "s3cret") || !strings.Contains(text, "xxxxx") {
				t.Errorf("told: %s", text)
			}
		}
	})
}

// Tell raises an alert about an event at once. Its caller bounds how often.
func (g *Ground) Tell(a Alert) {
	a.Phase = Once
	g.sink.Alert(g.Clean(a))
}
