package alerts

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

var key = []byte("0123456789abcdef0123456789abcdef")

// secretsDir is a folder with the signing secret "hook".
func secretsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hook"), []byte(signingPrefix+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWebhook: a channel gets what it wants, signed, as a CloudEvent, each trouble once; a test alert goes through
// whatever it wants.
func TestWebhook(t *testing.T) {
	r := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL, "secret_file": "hook", "alerts": []string{"streams", "task-error"}, "severity": "critical",
		"headers": map[string]string{"X-Team": "ops"}})
	s, _ := starts(t, Config{Store: store, Source: in, SecretsDir: secretsDir(t)})
	in.put(begins("n1", "streams", "TASKS", true), begins("n2", "streams", "TASKS", true), begins("n1", "clock", "", false))
	p := r.next(t)
	var e cloudEvent
	if err := json.Unmarshal([]byte(p.body), &e); err != nil {
		t.Fatal(err)
	}
	if e.SpecVersion != "1.0" || e.ID != "b-streamsTASKSn1" || e.ID != p.id || e.Type != "dev.duly.alert.streams" || e.Source != "/duly/duly" || e.Subject != "TASKS" ||
		e.Data.Phase != "begin" || e.Data.Error != "why" || e.Data.Since == "" || p.header.Get("X-Team") != "ops" || p.header.Get("Content-Type") != cloudEventType {
		t.Errorf("%+v %v", e, p.header)
	}
	var at int64
	if _, err := fmt.Sscan(p.header.Get(headerTimestamp), &at); err != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Errorf("timestamp %q", p.header.Get(headerTimestamp))
	}
	if want := sign([][]byte{key}, p.id, time.Unix(at, 0), []byte(p.body)); p.header.Get(headerSignature) != want {
		t.Errorf("signature %q, want %q", p.header.Get(headerSignature), want)
	}
	r.quiet(t)
	if err := s.Test(t.Context(), "ops"); err != nil {
		t.Error(err)
	}
	if p := r.next(t); !strings.Contains(p.body, `"name":"test"`) {
		t.Error(p.body)
	}
	in.put(ends("n1", "streams", "TASKS", true), ends("n2", "streams", "TASKS", true), once("t1", "task-error"))
	if p := r.next(t); !strings.Contains(p.body, `"phase":"end"`) {
		t.Error(p.body)
	}
	if p := r.next(t); !strings.Contains(p.body, `"task":"t1"`) {
		t.Error(p.body)
	}
	until(t, "all are done with", func() bool { return in.open() == 0 })
	if c := s.Counts(); c[1] != (Count{kindWebhook, 3, 0}) {
		t.Errorf("%+v", c)
	}
	if err := s.Test(t.Context(), "none"); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("test of a channel that there is not: %v", err)
	}
}

// TestKilledSender: what a sender had not delivered when it was killed, the next one delivers, by the same id; what it had
// is not told again.
func TestKilledSender(t *testing.T) {
	var up atomic.Bool
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL})
	_, kill := starts(t, Config{Store: store, Source: in})
	in.put(begins("n1", "streams", "A", true), once("t1", "task-error"))
	first := r.next(t)
	kill() // in the middle of it
	if in.open() != 2 {
		t.Fatalf("%d alerts are left, want both", in.open())
	}
	for len(r.got) > 0 { // its last tries
		<-r.got
	}
	up.Store(true)
	_, stop := starts(t, Config{Store: store, Source: in})
	var ids []string
	for len(ids) < 2 {
		ids = append(ids, r.next(t).id)
	}
	if !slices.Contains(ids, first.id) || !slices.Contains(ids, "t1") {
		t.Errorf("got %q, want %q and t1", ids, first.id)
	}
	until(t, "all are done with", func() bool { return in.open() == 0 })
	stop()
	_, stop = starts(t, Config{Store: store, Source: in})
	in.put(begins("n2", "streams", "A", true), begins("n1", "streams", "A", true)) // the second as if its acknowledgement had been lost
	until(t, "it is done with", func() bool { return in.open() == 0 })
	r.quiet(t)
	stop()
	starts(t, Config{Store: store, Source: in})
	in.put(ends("n1", "streams", "A", true)) // n2 is in it still
	until(t, "it is done with", func() bool { return in.open() == 0 })
	r.quiet(t)
}

// TestRetries: a receiver that fails for a time gets the alert when it is back, one that refuses it does not get it
// again, and a channel that fails holds up no other.
func TestRetries(t *testing.T) {
	flaky := newReceiver(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		if n < 2 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	refuses := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	good := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	for name, r := range map[string]*receiver{"flaky": flaky, "refuses": refuses, "good": good} {
		store.channel(t, name, map[string]any{"kind": "webhook", "url": r.URL})
	}
	reported := make(chan error, 1000)
	s, _ := starts(t, Config{Store: store, Source: in, Report: func(err error) { reported <- err }})
	in.put(once("t1", "task-error"))
	good.next(t)
	for range 3 {
		if id := flaky.next(t).id; id != "t1" {
			t.Errorf("id %q: each try has the alert's own", id)
		}
	}
	refuses.next(t)
	until(t, "it is done with", func() bool { return in.open() == 0 })
	refuses.quiet(t)
	until(t, "the channel that refuses is reported", func() bool {
		for {
			select {
			case err := <-reported:
				if err != nil && strings.Contains(err.Error(), "refuses: the receiver answers 410") && !strings.Contains(err.Error(), "flaky") {
					return true
				}
			default:
				return false
			}
		}
	})
	if c := s.Counts()[1]; c.Sent != 2 || c.Failed != 1 {
		t.Errorf("%+v", c)
	}
	if all := s.Channels(); len(all) != 3 || all[2].Name != "refuses" || all[2].Failed != 1 || all[2].Error == "" || all[1].Sent != 1 {
		t.Errorf("%+v", all)
	}
}

// TestComesTwice: an alert that comes again while it is being delivered is delivered once.
func TestComesTwice(t *testing.T) {
	release := make(chan struct{})
	r := newReceiver(t, func(int64, http.ResponseWriter, *http.Request) { <-release })
	store, in := newSettings(), newStream()
	in.twice = true
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL})
	starts(t, Config{Store: store, Source: in})
	in.put(once("t1", "task-error"))
	r.next(t)
	until(t, "it has come again", func() bool { return in.again.Load() == 1 })
	close(release)
	until(t, "it is done with", func() bool { return in.open() == 0 })
	r.quiet(t)
}

// TestGivenUp: a receiver that fails for longer than is retried does not get the alert, which is counted and over.
func TestGivenUp(t *testing.T) {
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL})
	s, _ := starts(t, Config{Store: store, Source: in, RetryFor: 100 * time.Millisecond})
	in.put(once("t1", "task-error"))
	until(t, "it is given up", func() bool { return in.open() == 0 })
	if c := s.Counts()[1]; c.Sent != 0 || c.Failed != 1 {
		t.Errorf("%+v", c)
	}
}

// TestRate: over the rate of a channel, events of one name are told together; none is left out.
func TestRate(t *testing.T) {
	r := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL, "rate": 60})
	starts(t, Config{Store: store, Source: in})
	const all = 50
	for n := range all {
		in.put(once(fmt.Sprint("t", n), "task-error"))
	}
	told, posts := 0, 0
	for told < all {
		var e cloudEvent
		if err := json.Unmarshal([]byte(r.next(t).body), &e); err != nil {
			t.Fatal(err)
		}
		told, posts = told+e.Data.Times, posts+1
	}
	if told != all || posts > 15 || posts < 10 {
		t.Errorf("%d events in %d alerts, want %d in ten and one or two more", told, posts, all)
	}
	until(t, "all are done with", func() bool { return in.open() == 0 })
}

// TestFailingChannel: a channel that takes nothing holds no alert up for another one, however many there are.
func TestFailingChannel(t *testing.T) {
	dead := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	ops := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	for name, url := range map[string]string{"dead": dead.URL, "ops": ops.URL} {
		store.channel(t, name, map[string]any{"kind": "webhook", "url": url, "rate": 600})
	}
	s, _ := starts(t, Config{Store: store, Source: in})
	until(t, "the channels are read", func() bool { return len(s.Channels()) == 2 })
	const events, troubles = InFlightMost + 100, 32
	for n := range events {
		in.put(once(fmt.Sprint("t", n), "task-error"))
	}
	hears := func(r *receiver, most int) (told int, begun []string) {
		for told+len(begun) < most {
			var e cloudEvent
			if err := json.Unmarshal([]byte(r.next(t).body), &e); err != nil {
				t.Fatal(err)
			}
			if e.Data.Phase == string(core.AlertBegins) {
				begun = append(begun, e.Data.Key)
				continue
			}
			told += e.Data.Times
		}
		return told, begun
	}
	if told, _ := hears(ops, events); told != events {
		t.Errorf("the other channel is told of %d events, want %d", told, events)
	}
	for n := range troubles {
		in.put(begins("n1", "agents", fmt.Sprint("a", n), true))
	}
	if _, begun := hears(ops, troubles); len(begun) != troubles {
		t.Errorf("%d troubles are told, want %d", len(begun), troubles)
	}
	until(t, "no more are held than may wait", func() bool { return in.open() <= waitingMost/2+1 })
}

// TestWaitingForAFailingChannel: of too many alerts events are told together, each once, and only then the oldest is given up.
func TestWaitingForAFailingChannel(t *testing.T) {
	s, err := New(Config{Store: newSettings(), Source: newStream(), Leads: func() bool { return true }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(&leader{s: s, ctx: t.Context()}, Channel{Name: "ops", Kind: kindWebhook}, "")
	const most = 16
	w.fails, w.most = true, most
	left := 0
	put := func(a core.Alert) { left += len(w.put(&flight{alert: a})) }
	for n := range 2 * most {
		put(once(fmt.Sprint("t", n), "task-error"))
		if n < most/2 {
			put(begins("n1", "agents", fmt.Sprint("a", n), true))
		}
	}
	if given := s.Counts()[1].Failed; given != 0 || left != most/2*5-most {
		t.Errorf("%d given up, %d do not wait any more", given, left)
	}
	for n := range most {
		put(begins("n2", "breaker", fmt.Sprint("b", n), true))
	}
	if given := s.Counts()[1].Failed; given != most/2+1 || len(w.waiting) != most {
		t.Errorf("%d given up, %d wait", given, len(w.waiting))
	}
}

// TestChannelThatComesBack: all that began while the only channel failed is told when it does not any more.
func TestChannelThatComesBack(t *testing.T) {
	var well atomic.Bool
	tried := make(chan struct{}, 100)
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusBadGateway)
			tried <- struct{}{}
		}
	})
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL, "rate": 600})
	starts(t, Config{Store: store, Source: in})
	const troubles = 50
	for n := range troubles {
		in.put(begins("n1", "agents", fmt.Sprint("a", n), true))
	}
	for range 2 {
		<-tried
	}
	well.Store(true)
	told := map[string]bool{}
	for len(told) < troubles {
		var e cloudEvent
		if err := json.Unmarshal([]byte(r.next(t).body), &e); err != nil {
			t.Fatal(err)
		}
		told[e.Data.Key] = true
	}
	until(t, "all are done with", func() bool { return in.open() == 0 })
}

// TestTroubleEndsWithTheLead: a channel that failed is no trouble of a node that leads no more.
func TestTroubleEndsWithTheLead(t *testing.T) {
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	store, in := newSettings(), newStream()
	store.channel(t, "refuses", map[string]any{"kind": "webhook", "url": r.URL})
	var leads, fails atomic.Bool
	leads.Store(true)
	starts(t, Config{Store: store, Source: in, Leads: leads.Load, Report: func(err error) { fails.Store(err != nil) }})
	in.put(once("t1", "task-error"))
	until(t, "the channel is reported", fails.Load)
	leads.Store(false)
	until(t, "it is reported no more", func() bool { return !fails.Load() })
}

// TestOnlyTheLeaderSends: a sender that does not lead reads nothing, and one that leads no more stops.
func TestOnlyTheLeaderSends(t *testing.T) {
	r := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL})
	var leads atomic.Bool
	var asked atomic.Int64
	starts(t, Config{Store: store, Source: in, Leads: func() bool { asked.Add(1); return leads.Load() }})
	in.put(once("t1", "task-error"))
	r.quiet(t)
	leads.Store(true)
	r.next(t)
	leads.Store(false)
	before := asked.Load()
	until(t, "it has stopped, and asks again", func() bool { return asked.Load() >= before+2 })
	in.put(once("t2", "task-error"))
	r.quiet(t)
}

// TestChannelsChange: a channel that is added, changed, switched off or deleted while a sender leads is followed.
func TestChannelsChange(t *testing.T) {
	first, second := newReceiver(t, nil), newReceiver(t, nil)
	store, in := newSettings(), newStream()
	s, _ := starts(t, Config{Store: store, Source: in})
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": first.URL})
	store.channel(t, "bad", map[string]any{"kind": "pigeon"})
	until(t, "the channels are read", func() bool { return len(s.Channels()) == 2 })
	in.put(once("t1", "a"))
	first.next(t)
	if all := s.Channels(); !strings.Contains(all[0].Error, `kind: "pigeon", want webhook or email`) {
		t.Errorf("%+v", all)
	}
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": second.URL})
	until(t, "the change is followed", func() bool {
		in.put(once(fmt.Sprint("t", second.seen.Load(), time.Now().UnixNano()), "a"))
		return second.seen.Load() > 0
	})
	if err := store.DeleteSetting(t.Context(), ChannelPrefix+"ops"); err != nil {
		t.Fatal(err)
	}
	until(t, "the channel is gone", func() bool { return len(s.Channels()) == 1 })
	until(t, "nothing is left", func() bool { return in.open() == 0 })
}

// TestNoSecretLeaves: credentials in texts of alerts do not leave, and errors do not repeat the address of a receiver.
//
// covers: C12
func TestNoSecretLeaves(t *testing.T) {
	r := newReceiver(t, nil)
	store, in := newSettings(), newStream()
	t.Setenv("DULY_ALERT_TEST", "T0KEN-in-the-path")
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL + "/{secret}", "secret_env": "DULY_ALERT_TEST", "body": `{"text":{{json .Text}},"why":{{json .Error}},"more":{{json .More}}}`})
	s, stop := starts(t, Config{Store: store, Source: in})
	for _, uri := range []string{"postgres://app:s3cret@db/duly", "nats://s3cret@n1:4222", "nats://a:s3cret@n1,b:s3cret@n2", "host=db password=s3cret user=app", "https://u:s3cret@h/?token=s3cret"} {
		a := once(uri, "database")
		a.Text, a.Error, a.Attrs = "cannot reach "+uri, "dial "+uri+": refused", []core.AlertAttr{{Name: "at", Value: uri}}
		in.put(a)
	}
	for range 5 {
		if p := r.next(t); strings.Contains(p.body, "s3cret") || !json.Valid([]byte(p.body)) {
			t.Errorf("sent %s", p.body)
		}
	}
	until(t, "all are done with", func() bool { return in.open() == 0 })
	stop()
	r.Close()
	err := s.Test(context.Background(), "ops")
	if err == nil || strings.Contains(err.Error(), "T0KEN") || strings.Contains(s.Channels()[0].Error, "T0KEN") {
		t.Errorf("%v, %+v", err, s.Channels())
	}
}

// TestReceiverRepeatsTheSecret: what a receiver says of a refusal is shown to operators without the secret in it.
//
// covers: P13
func TestReceiverRepeatsTheSecret(t *testing.T) {
	const secret = "T0KEN-in-the-path"
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 403 no " + secret + " here\r\nContent-Length: 0\r\n\r\n") // a client that is gone asks again
		_ = buffer.Flush()
	})
	store := newSettings()
	t.Setenv("DULY_ALERT_TEST", secret)
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL + "/{secret}", "secret_env": "DULY_ALERT_TEST"})
	s, _ := starts(t, Config{Store: store, Source: newStream()})
	err := s.Test(t.Context(), "ops")
	if err == nil || !strings.Contains(err.Error(), "403 no xxxxx here") || strings.Contains(s.Channels()[0].Error, secret) {
		t.Errorf("%v, %+v", err, s.Channels())
	}
}
