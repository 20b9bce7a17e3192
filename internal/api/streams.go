package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
)

// Bounds of an event stream.
const (
	streamWindow   = 256                   // events that wait for a reader
	streamWriteMax = 20 * time.Second      // for a reader to take one
	streamSlowMax  = 10 * time.Second      // for a reader with a full window to make room
	streamBeat     = 15 * time.Second      // between two signs of life
	streamGap      = 10 * time.Millisecond // between two writes: what comes meanwhile leaves together
	streamRetry    = 2 * time.Second       // for a browser to come again
	streamIDMax    = 64                    // bytes of Last-Event-ID
)

type (
	eventsIn struct {
		Event  string `query:"event" enum:"begun,step_passed,step_failed,undo_begun,step_undone,undo_failed,resubmitted,ended,refused,lost" doc:"only these; ended and refused are kept for a time and told again after Last-Event-ID, the others are told as they happen"`
		Type   string `query:"type" maxLength:"64"`
		Label  string `query:"label" maxLength:"129" doc:"key=value; a submission that was refused has none"`
		Status string `query:"status" enum:"pending,processing,processed,undoing,undone,error"`
		Last   string `header:"Last-Event-ID" maxLength:"64" doc:"go on after this event; absent: from now on"`
	}
	taskEventsIn struct {
		TaskIn
		Last string `header:"Last-Event-ID" maxLength:"64"`
	}
)

// streamRoutes are what is told as it happens.
func (a *api) streamRoutes() {
	const about = "Server-sent events, named task: what happened stands in the field event. Ends and refusals have an id to go on after; steps are told as they happen. A reader that is too slow is let go with an event named dropped, which says why."
	described[eventsIn, streamed](a, route{method: "GET", path: "/v1/events", id: "followEvents", tag: "tasks", needs: operate.RoleViewer,
		summary: "What becomes of tasks, as it happens", about: about}, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		f := operate.EventFilter{What: operate.EventWhat(q.Get("event")), Type: q.Get("type"), Label: q.Get("label"), Status: core.State(q.Get("status"))}
		var badLabel error
		if f.Label != "" {
			_, badLabel = core.ParseLabel(f.Label)
		}
		switch {
		case f.What != "" && !slices.Contains(operate.EventWhats, f.What):
			problem(w, ingest.Refuse(400, ingest.CauseQuery, "query parameter event is %s, want one of %v", core.QuoteShort(string(f.What)), operate.EventWhats))
		case badLabel != nil:
			problem(w, ingest.Refuse(400, ingest.CauseQuery, "query parameter label: %v", badLabel))
		case f.Type != "" && core.CheckName("type", f.Type) != nil:
			problem(w, ingest.Refuse(400, ingest.CauseTypeName, "%v", core.CheckName("type", f.Type)))
		case f.Status != "" && !slices.Contains(states, f.Status):
			problem(w, ingest.Refuse(400, ingest.CauseQuery, "query parameter status is %s, want one of %v", core.QuoteShort(string(f.Status)), states))
		default:
			a.follow(w, r, f, nil)
		}
	}, describeStream)
	described[taskEventsIn, streamed](a, route{method: "GET", path: "/v1/tasks/{type}/{id}/events", id: "followTask", tag: "tasks", needs: operate.RoleViewer, client: true,
		summary: "What becomes of one task, as it happens", about: about + " The end of a task that has ended is told first, and later what an operator does with it: the reader goes when it has seen enough."}, func(w http.ResponseWriter, r *http.Request) {
		taskType, id, bad := names(r)
		if bad != nil {
			problem(w, bad)
			return
		}
		a.follow(w, r, operate.EventFilter{Type: taskType, Task: id}, func() (operate.Event, bool) { return a.endOf(r, taskType, id) })
	}, describeStream)
	described[struct{}, streamed](a, route{method: "GET", path: "/v1/live", id: "followLive", tag: "engine", needs: operate.RoleViewer,
		summary: "The overview and a sample, as they are read", about: "Server-sent events, named live. All who listen share one reader."}, a.followLive, describeStream)
}

// describeStream describes an answer of events.
func describeStream(op *huma.Operation) {
	op.Responses["200"] = &huma.Response{Description: "events until the reader goes", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}
}

// stream is an answer of events that has begun.
type stream struct {
	w  io.Writer
	rc *http.ResponseController
}

// open begins an answer of events, if there is room for one more; done gives the room back.
func (a *api) open(w http.ResponseWriter, r *http.Request) (s *stream, done func(), bad *ingest.Refusal) {
	done, full := a.streams.Take(r.Context(), "event streams")
	if full != nil {
		return nil, nil, ingest.Refuse(full.Code, ingest.CauseFull, "%s", full.Detail).After(streamRetry)
	}
	s = &stream{w, http.NewResponseController(w)}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // a proxy passes on at once
	w.WriteHeader(http.StatusOK)
	return s, done, nil
}

// send writes one event; a reader that does not take it in time is an error.
func (s *stream) send(name, id string, body any) error {
	text, err := eventText(name, id, body)
	if err != nil {
		return err
	}
	return s.put(text)
}

// eventText is an event as it is sent.
func eventText(name, id string, body any) (string, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
	return b.String(), nil
}

// sendTasks writes an event and those that wait behind it: to write one costs less than to have it sent.
func (s *stream) sendTasks(e operate.Event, behind <-chan operate.Event) error {
	var all strings.Builder
	for n := len(behind); ; n-- {
		text, err := eventText("task", e.ID, e)
		if err != nil {
			return err
		}
		all.WriteString(text)
		if n == 0 {
			return s.put(all.String())
		}
		e = <-behind
	}
}

func (s *stream) put(text string) error {
	// A writer without deadlines is a test's.
	_ = s.rc.SetWriteDeadline(time.Now().Add(streamWriteMax))
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.rc.Flush()
}

// drop tells a reader why its stream ends.
func (s *stream) drop(bad *ingest.Refusal) {
	_ = s.send("dropped", "", problemOf(bad)) // an error is a client that went away
}

var errSlow = errors.New("the reader is too slow")

// endOf is the end of a task that has ended, as the event stream told it, but for its place there.
func (a *api) endOf(r *http.Request, taskType, id string) (e operate.Event, ended bool) {
	view, err := a.find(r, taskType, id)
	if err != nil || view.EndedAt == 0 { // an error: it is looked for again
		return e, false
	}
	return operate.Event{What: operate.EventEnded, Type: view.Type, Task: view.ID, Status: view.State, Partition: view.Partition, Seq: view.Seq,
		Step: view.FailedStep, Labels: core.FormatLabels(view.Labels), Error: view.Reason, At: view.EndedAt.Time()}, true
}

// follow tells events until the reader goes. What is ahead of the reader waits here, and not in the source. end, which may be
// nil, looks for an end that came before the source was listened to.
func (a *api) follow(w http.ResponseWriter, r *http.Request, f operate.EventFilter, end func() (operate.Event, bool)) {
	after := r.Header.Get("Last-Event-ID")
	if len(after) > streamIDMax || strings.ContainsAny(after, "\r\n\x00") {
		problem(w, ingest.Refuse(400, ingest.CauseQuery, "header Last-Event-ID %s has %d bytes, want at most %d of one line", core.QuoteShort(after), len(after), streamIDMax))
		return
	}
	s, done, bad := a.open(w, r)
	if bad != nil {
		problem(w, bad)
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events := make(chan operate.Event, streamWindow)
	ended := make(chan error, 1)
	own := scopeOf(ctx)
	go func() {
		ended <- a.ports.Events.Follow(ctx, after, f, func(e operate.Event) error {
			if own.narrowed() && e.What != operate.EventLost {
				if labels, _ := core.ParseLabels(e.Labels); !own.knows(e.Task, labels) {
					return nil
				}
			}
			select {
			case events <- e:
				return nil
			default:
			}
			// The source waits with its reader: nothing is read ahead of a slow one.
			slow := time.NewTimer(streamSlowMax)
			defer slow.Stop()
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-slow.C:
				return errSlow
			}
		})
	}()
	if after != "" {
		end = nil // the source tells what came since
	}
	err := a.tell(ctx, s, events, ended, end)
	cancel()
	if err == nil {
		<-ended
	}
}

// tell writes events until the source or the reader ends; of one task it looks for the end at once and at each beat, until one
// is told. Error: what the source ended with, which was taken then.
func (a *api) tell(ctx context.Context, s *stream, events <-chan operate.Event, ended <-chan error, end func() (operate.Event, bool)) error {
	if s.put(fmt.Sprintf("retry: %d\n\n", streamRetry.Milliseconds())) != nil {
		return nil
	}
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	look := func() bool {
		if end == nil {
			return true
		}
		e, is := end()
		if is {
			end = nil
		}
		return !is || s.sendTasks(e, nil) == nil
	}
	if !look() {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.Closing:
			s.drop(closing())
			return nil
		case e := <-events:
			if e.What == operate.EventEnded {
				end = nil
			}
			if s.sendTasks(e, events) != nil || pause.For(ctx, streamGap) != nil {
				return nil
			}
		case <-beat.C:
			if s.put(": alive\n\n") != nil || !look() {
				return nil
			}
		case err := <-ended:
			refused, ok := errors.AsType[*operate.Refusal](err)
			switch {
			case errors.Is(err, errSlow):
				s.drop(ingest.Refuse(429, ingest.CauseFull, "%s", say.Of("refuse.stream-slow", "n", streamWindow, "time", streamSlowMax)).After(streamRetry))
			case ok:
				p := refusalOf(refused)
				_ = s.send("dropped", "", p)
			case ctx.Err() == nil:
				a.log.Warn("an event stream ended", "error", err)
				s.drop(ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.stream-unreadable")).After(streamRetry))
			}
			if err == nil {
				err = errEnded
			}
			return err
		}
	}
}

func closing() *ingest.Refusal {
	return ingest.Refuse(503, ingest.CauseStopping, "%s", say.Of("refuse.stream-stops")).After(streamRetry)
}

var errEnded = errors.New("the source ended")

// followLive tells what is read live.
func (a *api) followLive(w http.ResponseWriter, r *http.Request) {
	s, done, bad := a.open(w, r)
	if bad != nil {
		problem(w, bad)
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	_ = s.rc.Flush()
	snapshots := a.ports.Live.Subscribe(ctx)
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		select {
		case <-a.cfg.Closing:
			s.drop(closing())
			return
		case snapshot, ok := <-snapshots:
			if !ok || s.send("live", "", snapshot) != nil {
				return
			}
		case <-beat.C:
			if s.put(": alive\n\n") != nil {
				return
			}
		}
	}
}
