package ground

import (
	"context"
	"log/slog"
	"time"
)

// Phase says what an alert is about.
type Phase string

// The phases.
const (
	Begins Phase = "begin"
	Ends   Phase = "end"
	Once   Phase = "once" // an event that has no end
)

// Alert tells an operator about a trouble.
type Alert struct {
	Name  string // of the condition, or of the kind of event
	Key   string // the resource, where a condition has several
	Text  string
	Phase Phase
	Since time.Time     // when the trouble began
	For   time.Duration // how long it has lasted, or lasted
	Times int           // how often it began, 1 unless it flapped
	Error string        // the last reason
	// Consequence of the trouble.
	Consequence Consequence
	Shared      bool        // see Condition
	Attrs       []slog.Attr // more about an event
}

// Sink is where alerts go.
type Sink interface {
	// Alert must not block.
	Alert(Alert)
}

// Sinks is several sinks as one.
type Sinks []Sink

// Alert implements Sink.
func (s Sinks) Alert(a Alert) {
	for _, sink := range s {
		sink.Alert(a)
	}
}

// LogSink writes one line for each alert: the beginning of a trouble as an error, one that is only told as a warning,
// its end as information.
type LogSink struct{ Log *slog.Logger }

// Alert implements Sink.
func (s LogSink) Alert(a Alert) {
	level := slog.LevelError
	switch {
	case a.Phase == Ends:
		level = slog.LevelInfo
	case a.Phase == Begins && a.Consequence == Told:
		level = slog.LevelWarn
	}
	text := a.Text
	if a.Phase != Ends {
		text = "ALERT: " + text
	}
	attrs := []slog.Attr{slog.String("alert", string(a.Phase)), slog.String("name", a.Name)}
	if a.Key != "" {
		attrs = append(attrs, slog.String("key", a.Key))
	}
	if a.Phase != Once {
		attrs = append(attrs, slog.Time("since", a.Since.Round(0)), slog.Duration("for", a.For.Round(time.Millisecond)))
	}
	if a.Times > 1 {
		attrs = append(attrs, slog.Int("times", a.Times))
	}
	if a.Error != "" {
		attrs = append(attrs, slog.String("error", a.Error))
	}
	s.Log.LogAttrs(context.Background(), level, text, append(attrs, a.Attrs...)...)
}
