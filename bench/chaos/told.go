package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// due is what must be told of a fault. Nothing is due of a fault that is over before
// a condition has to report it, or that is a plan of the operator's own.
type due struct {
	after   time.Duration // the least that it must have lasted
	alerts  []string      // conditions of docs/operations/health.md that must begin and end, or events of it
	unready []string      // one of these conditions must keep a process from being ready, unreadyMax after it began at most
	lines   []string      // each must be logged by some process
}

// unreadyMax is how soon a process must say that it is not ready.
const unreadyMax = 10 * time.Second

// toldMax is how long after a recovery the last line about a fault may come: a trouble is
// over when all has been well for two seconds, and lines of a kind are a second apart.
const toldMax = 20 * time.Second

// tellings are what was told of one fault.
type tellings struct {
	due            bool
	missed         []string // what was due and was not told
	alerts         []string // that began, without those that are told once
	unready, again time.Duration
	wasUnready     bool
}

// heard collects the lines of one fault.
type heard struct {
	at    time.Time
	lines []line
}

// hears waits until all that is due was told and all that has begun has ended, and says what
// was. It must be called when the system works again.
func (w *world) hears(ctx context.Context, in *injection, healed time.Time) (*tellings, error) {
	h := &heard{at: in.at}
	limit := time.Now().Add(toldMax)
	for {
		more, err := w.logs.read(w.speakers())
		if err != nil {
			return nil, err
		}
		h.lines = append(h.lines, w.over.unexpected(more)...)
		t := w.judge(in, h, healed)
		if len(t.missed) == 0 || time.Now().After(limit) {
			t.missed = append(t.missed, in.missed...)
			w.watch.forget(in.at)
			return t, nil
		}
		if err := pause(ctx, 10*lookEvery); err != nil {
			return nil, err
		}
	}
}

// speakers are the processes whose logs count.
func (w *world) speakers() []*process { return append(w.everyRole(), w.agents...) }

// judge says what was told so far.
func (w *world) judge(in *injection, h *heard, healed time.Time) *tellings {
	t := &tellings{due: in.due != nil && healed.Sub(in.at) >= in.due.after}
	t.unready, t.again, t.wasUnready = w.watch.unready(in.at, nil)
	for name := range h.began() {
		t.alerts = append(t.alerts, name)
	}
	slices.Sort(t.alerts)
	t.missed = append(t.missed, h.open()...)
	if name := w.watch.waiting(); name != "" {
		t.missed = append(t.missed, name+" does not say that it is ready")
	}
	if in.due == nil || !t.due {
		return t
	}
	for _, name := range in.due.alerts {
		if !h.alerted(name) {
			t.missed = append(t.missed, "no alert "+name)
		}
	}
	for _, text := range in.due.lines {
		if !slices.ContainsFunc(h.lines, func(l line) bool { return !l.at.Before(h.at) && strings.Contains(l.raw, text) }) {
			t.missed = append(t.missed, fmt.Sprintf("no line %q", text))
		}
	}
	if len(in.due.unready) > 0 {
		after, _, ok := w.watch.unready(in.at, in.due.unready)
		switch {
		case !ok:
			t.missed = append(t.missed, "ready all the time")
		case after > unreadyMax:
			t.missed = append(t.missed, fmt.Sprintf("not ready only after %v", after.Round(time.Millisecond)))
		}
	}
	return t
}

// began are the conditions whose trouble was told.
func (h *heard) began() map[string]bool {
	all := map[string]bool{}
	for i := range h.lines {
		if l := &h.lines[i]; l.attrs["alert"] == "begin" && !l.at.Before(h.at) {
			all[l.attrs["name"]] = true
		}
	}
	return all
}

// open are the troubles whose beginning was told and whose end was not, by processes that
// still live.
func (h *heard) open() []string {
	state := map[string]string{}
	lives := map[string]string{} // the last of each process
	for i := range h.lines {
		l := &h.lines[i]
		lives[l.process] = l.life
		if phase := l.attrs["alert"]; phase == "begin" || phase == "end" {
			state[l.life+"|"+l.attrs["name"]+" "+l.attrs["key"]] = phase
		}
	}
	var all []string
	for what, phase := range state {
		life, name, _ := strings.Cut(what, "|")
		process, _, _ := strings.Cut(life, "#")
		if phase == "begin" && lives[process] == life {
			all = append(all, fmt.Sprintf("%s: no end of %s", process, strings.TrimSpace(name)))
		}
	}
	slices.Sort(all)
	return all
}

// alerted reports whether a condition's trouble, or an event, was told.
func (h *heard) alerted(name string) bool {
	return slices.ContainsFunc(h.lines, func(l line) bool {
		phase := l.attrs["alert"]
		return !l.at.Before(h.at) && (phase == "begin" || phase == "once") && l.attrs["name"] == name
	})
}

// String says it in a line.
func (t *tellings) String() string {
	text := "told: nothing due"
	switch {
	case len(t.missed) > 0:
		text = "NOT TOLD: " + strings.Join(t.missed, "; ")
	case t.due:
		text = "told"
	}
	if len(t.alerts) > 0 {
		text += ", alerts " + strings.Join(t.alerts, " ")
	}
	if t.wasUnready {
		text += fmt.Sprintf(", not ready after %d ms, ready again after %d ms", t.unready.Milliseconds(), t.again.Milliseconds())
	}
	return text
}
