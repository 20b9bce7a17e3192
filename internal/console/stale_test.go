package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"duly.dev/duly/internal/operate"
)

// TestOperationInABrowser: the page of an operation follows it from running to braked and back, and says that it could not
// be read for as long as it shows what was.
func TestOperationInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	var away atomic.Bool
	inner := as(operate.RoleOperator, newConsole(t, w.config()))
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if away.Load() && strings.HasSuffix(r.URL.Path, "/op-7") {
			http.Error(rw, `<main><p class="note">The store is away.</p></main>`, http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(rw, r)
	}))
	turns := func(state operate.OperationState, why string, asked int64) {
		w.mu.Lock()
		op := w.ops[0]
		op.State, op.Why, op.Tally.Waiting, op.Tally.Asked = state, why, op.Tally.Waiting+op.Tally.Asked-asked, asked
		w.mu.Unlock()
		w.tell("")
	}
	const is = `document.querySelector("#op .head .badge").textContent === %q && (document.querySelector("#op .why-sentence") || {textContent: ""}).textContent === %q`
	turns(operate.OperationRunning, "", 3)
	b.open("operations/op-7")
	waits(t, "the tab listens", func() bool { return w.listeners() == 1 })
	turns(operate.OperationRunning, "", 7)
	b.until(fmt.Sprintf(is, "running", "") + ` && document.querySelector("#op-tally td.busy").textContent === "7"`)
	turns(operate.OperationBraked, "too many failed", 7)
	b.until(fmt.Sprintf(is, "braked", "too many failed"))
	turns(operate.OperationBraked, "too many failed", 0)
	b.until(`!document.querySelector("#op-tally").dataset.moves`)
	turns(operate.OperationRunning, "", 0)
	b.until(fmt.Sprintf(is, "running", ""))

	away.Store(true)
	turns(operate.OperationBraked, "again", 0)
	const unread = `!document.getElementById("banner").hidden && document.body.classList.contains("stale") && document.getElementById("banner").textContent.indexOf("The store is away. What you see was read at") === 0`
	b.until(unread)
	eval[chromedp.Void](b, `document.querySelector("#needs-pill").textContent = "?"`)
	turns(operate.OperationBraked, "again", 0)
	b.until(`document.querySelector("#needs-pill").textContent !== "?" && ` + unread)
	away.Store(false)
	turns(operate.OperationBraked, "again", 0)
	b.until(fmt.Sprintf(is, "braked", "again") + ` && document.getElementById("banner").hidden`)
	b.clean("an operation")
}

// TestSessionThatEnded: a tab whose session ends says that one has to sign in, not that Duly is away, and goes on when that
// is done.
func TestSessionThatEnded(t *testing.T) {
	w := newWorld(time.Now)
	h := newConsole(t, w.config())
	signedIn := as(operate.RoleOperator, h)
	type session struct {
		context.Context
		end func()
	}
	var now atomic.Pointer[session]
	signIn := func() {
		ctx, end := context.WithCancel(t.Context())
		now.Store(&session{ctx, end})
	}
	signIn()
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s := now.Load()
		if s.Err() != nil {
			h.ServeHTTP(rw, r)
			return
		}
		ctx, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(s, end)()
		signedIn.ServeHTTP(rw, r.WithContext(ctx))
	}))
	b.open("tasks?state=error")
	waits(t, "the tab listens", func() bool { return w.listeners() == 1 })
	now.Load().end()
	b.until(`/^Sign in, or send a token. What you see is \d+ s old or more.$/.test(document.getElementById("banner").textContent) && document.body.classList.contains("stale")`)
	signIn()
	b.until(`document.getElementById("banner").hidden && !document.body.classList.contains("stale")`)
	b.clean("a session that ended")
}

// muted is an answer that says nothing any more while mute is set.
type muted struct {
	http.ResponseWriter
	mute *atomic.Bool
}

// Write implements http.ResponseWriter.
func (m muted) Write(p []byte) (int, error) {
	if m.mute.Load() {
		return len(p), nil
	}
	return m.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (m muted) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// TestMuteStream: a tab whose stream says nothing any more, though no one ended it, says that Duly cannot be reached, and asks
// again.
func TestMuteStream(t *testing.T) {
	w := newWorld(time.Now)
	var mute atomic.Bool
	inner := as(operate.RoleViewer, newConsole(t, w.config()))
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/live") {
			inner.ServeHTTP(rw, r)
			return
		}
		if mute.Load() {
			<-r.Context().Done()
			return
		}
		inner.ServeHTTP(muted{rw, &mute}, r)
	}))
	b.open("")
	waits(t, "the tab listens", func() bool { return w.listeners() == 1 })
	mute.Store(true)
	const later = `performance.now = (function (is) { return function () { return is() + 60000; }; })(performance.now.bind(performance))`
	eval[chromedp.Void](b, later)
	b.until(`document.getElementById("banner").textContent.indexOf("Duly cannot be reached since") === 0 && document.body.classList.contains("stale")`)
	waits(t, "the old stream is left", func() bool { return w.listeners() == 0 })
	mute.Store(false)
	eval[chromedp.Void](b, later)
	b.until(`document.getElementById("banner").hidden && !document.body.classList.contains("stale")`)
	b.clean("a mute stream")
}

// TestClockSetBack: the plots go on after a clock was set back, without what lies ahead of it, in a tab that is open as in a
// new one.
func TestClockSetBack(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, w.config())))
	b.open("")
	waits(t, "the tab listens", func() bool { return w.listeners() == 1 })
	w.mu.Lock()
	for i := range 2 {
		s := w.samples[len(w.samples)-1]
		s.Created, s.At = s.Created+2468, s.At.Add(2*time.Second)
		if i == 0 {
			s.At = s.At.Add(-2 * time.Minute)
		}
		w.samples = append(w.samples, s)
	}
	ps := points(w.samples)
	w.mu.Unlock()
	for i := range ps[1:] {
		if ps[i+1].At < ps[i].At {
			t.Fatalf("a point at %d comes after one at %d", ps[i+1].At, ps[i].At)
		}
	}
	if len(ps) < 10 {
		t.Fatalf("%d points are left", len(ps))
	}
	w.tell("")
	b.until(`document.querySelector("#plot-throughput [data-now='0']").textContent === "1,234"`)
	b.clean("a clock that was set back")
}

// TestSentOnce: a form whose button is pressed twice is sent once; one that was answered by something else than Duly can be
// sent again.
func TestSentOnce(t *testing.T) {
	w := newWorld(time.Now)
	inner := as(operate.RoleOperator, newConsole(t, w.config()))
	var sent atomic.Int64
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && sent.Add(1) == 1 {
			http.Error(rw, "no upstream", http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(rw, r)
	}))
	b.open("schedules")
	eval[chromedp.Void](b, `document.querySelector("a[href$='nightly/run-now']").click()`)
	b.until(`document.getElementById("dialog").open`)
	const twice = `(function (b) { b.click(); b.click(); })(document.querySelector("#dialog button[type=submit]"))`
	eval[chromedp.Void](b, twice)
	b.until(`document.getElementById("banner").textContent.indexOf("The answer cannot be shown.") === 0`)
	if n := sent.Load(); n != 1 {
		t.Errorf("pressed twice, sent %d times", n)
	}
	eval[chromedp.Void](b, twice)
	b.until(noDialog + `document.querySelector("#told .told")`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.timed[2].Submitted - 12345; n != 1 {
		t.Errorf("the schedule ran %d times", n)
	}
	b.clean("a form")
}

// TestPageSentOnce: a form that is a page of its own is sent once, too, while its answer is awaited.
func TestPageSentOnce(t *testing.T) {
	w := newWorld(time.Now)
	inner := as(operate.RoleOperator, newConsole(t, w.config()))
	var sent atomic.Int64
	b := newBrowser(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && sent.Add(1) == 1 {
			select {
			case <-time.After(3 * time.Second): // past the second press
			case <-r.Context().Done():
			}
		}
		inner.ServeHTTP(rw, r)
	}))
	b.open("schedules/nightly/run-now")
	eval[chromedp.Void](b, `(function (b) { [0, 1500].forEach(function (ms) { setTimeout(function () { b.click(); }, ms); }); })(document.querySelector("main .dialogform button[type=submit]"))`)
	b.until(`document.readyState === "complete" && document.querySelector("#told .told")`)
	if n := sent.Load(); n != 1 {
		t.Errorf("sent %d times", n)
	}
	b.clean("a page with a form")
}

// TestBackSelectsNothing: who comes back to a list that has changed has no other tasks selected than before.
func TestBackSelectsNothing(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("tasks?state=error")
	const marked = `Array.from(document.querySelectorAll("#bulk input[name=id]:checked")).map(function (i) { return i.value; }).join(" ")`
	eval[chromedp.Void](b, `document.querySelectorAll("#bulk input[name=id]").forEach(function (i, n) { if (n < 2) i.click(); })`)
	before := eval[string](b, marked)
	eval[chromedp.Void](b, `document.querySelector("#bulk tbody th a").click()`)
	b.until(`document.readyState === "complete" && document.querySelector("#journal")`)
	w.mu.Lock()
	w.born(&w.plansAll[1], "bulk-later", time.Second, `{"order":7}`).stops(time.Millisecond, 0, 500, "stock: shard 7 is read-only")
	w.mu.Unlock()
	b.do(chromedp.NavigateBack())
	b.until(`document.readyState === "complete" && document.querySelector("#bulk input[value='order/bulk-later']")`)
	if after := eval[string](b, marked); after != "" && after != before {
		t.Errorf("%s is selected, it was %s", after, before)
	}
	b.clean("back")
}

// TestChannelInABrowser: a channel that is stored in its dialog is told on the page of settings, below which it was opened.
func TestChannelInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleAdmin, newConsole(t, w.config())))
	b.open("settings")
	eval[chromedp.Void](b, `document.querySelector("a[href$='ops-hook/edit']").click()`)
	b.until(`document.getElementById("dialog").open`)
	eval[chromedp.Void](b, `document.querySelector("#dialog button[type=submit]").click()`)
	b.until(noDialog + `document.getElementById("told").textContent.indexOf("The channel ops-hook is stored.") >= 0`)
	b.clean("a channel")
}

// TestRecentOfASlowStore: of a store that answers after longer than a reading lasts, those who waited have its answer.
func TestRecentOfASlowStore(t *testing.T) {
	now, reads, away := noon, 0, errors.New("no answer")
	var r recent[int]
	for range 3 {
		_, err := r.get(t.Context(), func() time.Time { return now }, func(context.Context) (int, error) {
			reads++
			now = now.Add(readMax)
			return 0, away
		})
		if !errors.Is(err, away) {
			t.Fatal(err)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads for three who asked while one was under way", reads)
	}
}
