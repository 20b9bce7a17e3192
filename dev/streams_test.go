package dev_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/natsbus"
)

// taken submits until the door takes it: a stream that is away refuses meanwhile.
func (w *world) taken(id string) {
	w.t.Helper()
	w.until(id+" accepted", func() bool {
		answer, err := w.nc.Request("duly.submit.delivery."+id, []byte(`{"n":1}`), 2*time.Second)
		return err == nil && !strings.Contains(string(answer.Data), `"error"`)
	})
}

// lines counts lines of the log with a text.
func (w *world) lines(text string) int {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	n := 0
	for line := range strings.Lines(w.log.all.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// readAgain is how many partitions have told that they read the task stream again; a line of
// the log may speak for several.
func (w *world) readAgain() int {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	n := 0
	for line := range strings.Lines(w.log.all.String()) {
		if !strings.Contains(line, "ALERT: the task stream") {
			continue
		}
		times := 1
		if _, rest, ok := strings.Cut(line, " times="); ok {
			_, _ = fmt.Sscan(rest, &times)
		}
		n += times
	}
	return n
}

// TestLostStreams: whichever stream or bucket is lost while everything runs is made again,
// and what is accepted from then on runs, without a restart. A lost task stream does not
// make the controls be read again, nor the other way round.
//
// covers: A5, A7, B3
func TestLostStreams(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	const each = 20 // submissions, in all partitions
	submit := func(name string) {
		for i := range each {
			w.taken(fmt.Sprintf("%s-%d", name, i))
		}
		for i := range each {
			w.ends("delivery", fmt.Sprintf("%s-%d", name, i), "processed")
		}
	}
	submit("before")
	for _, lost := range []string{"DULY_TASKS", "DULY_CONTROL", "DULY_EVENTS", "DULY_DEAD", "KV_DULY_NODES", "KV_DULY_KEYS", "KV_DULY_PARTITIONS"} {
		before := w.readAgain()
		if err := w.js.DeleteStream(lost); err != nil {
			t.Fatal(err)
		}
		w.until(lost+" made again", func() bool { _, err := w.js.StreamInfo(lost); return err == nil })
		submit("after-" + lost)
		if lost == "DULY_TASKS" {
			w.until("each partition has told that it reads again", func() bool { return w.readAgain() == 4 })
		} else if again := w.readAgain() - before; again != 0 {
			t.Errorf("%s was lost: the task stream was read again by %d partitions", lost, again)
		}
	}
	// Requests about tasks go through the control stream that was made again.
	w.agent("bare.wait", func(*nats.Msg) {}, answers(""))
	w.plan(`{"name":"waiting","version":1,"grace_ms":100,"steps":[{"name":"wait","agent":"bare.wait","undoable":true,"complete_by_ms":3000}]}`)
	w.submit("waiting", "w1", `{}`, nil)
	w.until("w1 begins", func() bool { _, found := w.task("waiting", "w1"); return found })
	if answer, err := w.nc.Request("duly.ask.cancel", []byte(`{"v":1,"kind":"cancel","id":"w1","type":"waiting"}`), 5*time.Second); err != nil || strings.Contains(string(answer.Data), `"error"`) {
		t.Fatal(answer, err)
	}
	w.ends("waiting", "w1", "undone")
	if n := w.lines("level=WARN"); n > 200 {
		t.Errorf("%d warnings about seven losses", n)
	}
}

// TestRestoredStream: a stream that comes back without what it held, under its own
// identity, is read from its beginning: what is accepted then runs, and what ran does not
// run again.
//
// covers: A6
func TestRestoredStream(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	for i := range 20 {
		w.taken(fmt.Sprintf("old-%d", i))
	}
	for i := range 20 {
		w.ends("delivery", fmt.Sprintf("old-%d", i), "processed")
	}
	info, err := w.js.StreamInfo("DULY_TASKS")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.js.DeleteStream("DULY_TASKS"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.js.AddStream(&info.Config); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		w.taken(fmt.Sprintf("new-%d", i))
	}
	w.taken("old-0") // again
	for i := range 5 {
		w.ends("delivery", fmt.Sprintf("new-%d", i), "processed")
	}
	if w.lines("ALERT: the task stream is read again from its beginning") == 0 || w.lines("it ends before the cursor") == 0 {
		t.Error("no alert")
	}
	if v := w.ends("delivery", "old-0", "processed"); len(v.Steps) != 2 || v.Steps[0].Attempt > 1 {
		t.Errorf("%+v", v)
	}
}

// TestPurgedByHand: messages that someone else has removed from a stream are told, and no node is less ready for it, until
// an operator accepts it.
//
// covers: L2
func TestPurgedByHand(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	for i := range 3 {
		w.taken(fmt.Sprintf("t-%d", i))
	}
	if err := w.js.PurgeStream("DULY_TASKS"); err != nil {
		t.Fatal(err)
	}
	w.until("the loss is told", func() bool { return w.lines("alert=begin name=stream-loss") == 1 })
	if code, body := w.http("GET", "/readyz", "", nil); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	conn, err := natsbus.DialToAsk(t.Context(), natsbus.Options{URL: w.nc.ConnectedUrl(), Name: "operator", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.AcceptLoss(t.Context(), "DULY_TASKS"); err != nil || n == 0 {
		t.Errorf("%d, %v", n, err)
	}
	w.until("the loss is accepted", func() bool { return w.lines("alert=end name=stream-loss") == 1 })
	w.taken("t-4")
	w.ends("delivery", "t-4", "processed")
}

// TestReadMessagesGoByAge: what every partition has read goes when it is old enough, however empty the stream is; it is no loss.
//
// covers: L2
func TestReadMessagesGoByAge(t *testing.T) {
	cfg := settings()
	cfg.StreamMaxAge = time.Second
	w := startWith(t, cfg)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	w.taken("t-1")
	w.ends("delivery", "t-1", "processed")
	w.until("the stream is empty", func() bool { info, err := w.js.StreamInfo("DULY_TASKS"); return err == nil && info.State.Msgs == 0 })
	w.taken("t-2")
	w.ends("delivery", "t-2", "processed")
	if told := w.lines("stream-loss"); told > 0 {
		t.Errorf("told %d times", told)
	}
}

// TestFullOfFinishedWork: a task stream that is full of tasks that have ended takes
// submissions again within seconds, and says once that it kept less than it was to keep.
//
// covers: B4
func TestFullOfFinishedWork(t *testing.T) {
	cfg := settings()
	cfg.StreamMaxBytes, cfg.StreamKeep = 40_000, time.Hour
	w := startWith(t, cfg)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	input := `"` + strings.Repeat("x", 500) + `"`
	n := 0
	for refused := false; !refused; n++ {
		if n > 1000 {
			t.Fatal("40,000 bytes took 1,000 submissions of 500")
		}
		refused = strings.Contains(w.submit("delivery", fmt.Sprintf("t-%d", n), input, nil), `"error"`)
	}
	for i := range 20 {
		w.taken(fmt.Sprintf("then-%d", i))
	}
	for i := range 20 {
		w.ends("delivery", fmt.Sprintf("then-%d", i), "processed")
	}
	for i := range n - 1 {
		w.ends("delivery", fmt.Sprintf("t-%d", i), "processed")
	}
	if told := w.lines("a stream is nearly full of finished work"); told != 1 {
		t.Errorf("told %d times", told)
	}
}

// TestStreamSettings: the settings of a node are those of its streams.
func TestStreamSettings(t *testing.T) {
	cfg := settings()
	cfg.Lease = 2 * time.Second
	cfg.StreamMaxBytes, cfg.StreamControlMaxBytes, cfg.StreamEventsMaxBytes, cfg.StreamDeadMaxBytes = 1<<26, 1<<25, 1<<24, 1<<23
	w := startWith(t, cfg)
	for name, bytes := range map[string]int64{"DULY_TASKS": 1 << 26, "DULY_CONTROL": 1 << 25, "DULY_EVENTS": 1 << 24, "DULY_DEAD": 1 << 23} {
		info, err := w.js.StreamInfo(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Config.MaxBytes != bytes {
			t.Errorf("%+v", info.Config)
		}
	}
	if info, err := w.js.StreamInfo("KV_DULY_NODES"); err != nil || info.Config.MaxAge != 2*time.Second {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestRetention: what a task was made of goes when it is to, and its end stays: each setting
// does what it is called.
//
// covers: inv9
func TestRetention(t *testing.T) {
	cfg := settings()
	cfg.RetainDetail = time.Second // and RetainRow for ever
	w := startWith(t, cfg)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	w.accepted("delivery", "d-1", `{}`, nil)
	w.ends("delivery", "d-1", "processed")
	w.until("its steps are forgotten", func() bool { v, found := w.task("delivery", "d-1"); return found && len(v.Steps) == 0 })
	if v := w.ends("delivery", "d-1", "processed"); v.ID != "d-1" {
		t.Errorf("%+v", v)
	}
}
