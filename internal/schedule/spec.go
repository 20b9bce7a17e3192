package schedule

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

// Limits of a schedule. An error names the field, the value and the limit.
const (
	// nameBytesMax leaves room for the instant in the ids of its tasks: see ID and RunNowID.
	nameBytesMax    = core.NameBytesMax - idBytes - len(nowSuffix)
	inputBytesMax   = 64 << 10 // of the input of its tasks
	cronBytesMax    = 256
	everyMin        = time.Second
	jitterMax       = 24 * time.Hour
	queueDefault    = 16 // runs that wait for the one before them
	queueMax        = 100
	catchUpDefault  = time.Hour // a run that is later is missed
	catchUpMin      = 10 * time.Second
	catchUpMax      = 31 * 24 * time.Hour
	CatchUpsDefault = 100 // runs that are made up for at a time
	catchUpsMax     = 1000
	yearMin         = 1970
	yearMax         = 2200
	countMost       = 20_000 // runs that one look goes over
	searchYears     = 40     // in which a cron line is looked for; 29 February on a given day of the week comes again within
)

// What becomes of a run whose predecessor has not ended.
const (
	OverlapSkip  = "skip"  // it is left out
	OverlapQueue = "queue" // it waits
	OverlapAll   = "all"   // it is submitted beside it
)

// Spec is a schedule as it is written: in a file, over HTTP and in the store.
type Spec struct {
	Name        string            `json:"name"`                   // also the beginning of the ids of its tasks
	Type        string            `json:"type"`                   // of its tasks
	Input       json.RawMessage   `json:"input"`                  // of its tasks, JSON
	PlanVersion int64             `json:"plan_version,omitempty"` // 0: the newest when a task is submitted
	CompleteBy  string            `json:"complete_by,omitempty"`  // a duration from the submission; empty: the plan's
	Labels      map[string]string `json:"labels,omitempty"`       // of its tasks
	Cron        string            `json:"cron,omitempty"`         // minute, hour, day of month, month, day of week
	Every       string            `json:"every,omitempty"`        // instead of cron: a duration, counted from From, or from 1970
	Zone        string            `json:"zone,omitempty"`         // of cron: a name of IANA; empty: UTC
	From        time.Time         `json:"from,omitzero"`          // no run before it
	Until       time.Time         `json:"until,omitzero"`         // no run at it or after it
	Jitter      string            `json:"jitter,omitempty"`       // a duration: each run is late by its own part of it, always the same
	Overlap     string            `json:"overlap,omitempty"`      // skip, queue or all; empty: skip
	Queue       int               `json:"queue,omitempty"`        // of overlap queue: so many wait at most; 0: queueDefault
	CatchUp     string            `json:"catch_up,omitempty"`     // a duration: a run that is later than this is missed; empty: catchUpDefault
	CatchUps    int               `json:"catch_ups,omitempty"`    // so many are made up for after a stop, the newest; 0: CatchUpsDefault
}

// FieldError is what is wrong with one field of a Spec: its value and what would be right.
type FieldError struct {
	Field string // as JSON has it
	Text  string
}

// Error is the text, which names the field.
func (e *FieldError) Error() string { return e.Text }

func wrong(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Text: field + " " + fmt.Sprintf(format, args...)}
}

// Schedule is a Spec that was understood. It is safe for concurrent use.
type Schedule struct {
	name    string
	line    string        // the cron line as it was written
	cron    cron.Schedule // on the wall clock, as if that were UTC; nil: an interval
	every   time.Duration
	zone    *time.Location
	from    time.Time
	until   time.Time // zero: without an end
	jitter  time.Duration
	catchUp time.Duration

	Overlap    string        // OverlapSkip, OverlapQueue or OverlapAll
	Queue      int           // runs that wait at most
	CatchUps   int           // runs that are made up for at a time
	CompleteBy time.Duration // of its tasks; 0: the plan's
	Labels     []core.Label  // of its tasks, by key
}

// Parse understands a spec. Error: *FieldError, one that names the first field that is wrong. Whether there is a run at
// all is for CheckFires.
func Parse(spec *Spec) (*Schedule, error) {
	s := &Schedule{name: spec.Name, from: spec.From, until: spec.Until, Overlap: spec.Overlap}
	for _, check := range []func(*Spec) *FieldError{s.parseTask, s.parseTimes, s.parseBounds} {
		if bad := check(spec); bad != nil {
			return nil, bad
		}
	}
	return s, nil
}

// CheckName refuses a name that a schedule cannot have. Error: *FieldError.
func CheckName(name string) error {
	if len(name) > nameBytesMax {
		return wrong("name", "%s has %d bytes, want 1 to %d: the ids of its tasks begin with it", core.QuoteShort(name), len(name), nameBytesMax)
	}
	if err := core.CheckName("name", name); err != nil {
		return &FieldError{Field: "name", Text: err.Error()}
	}
	return nil
}

// parseTask reads what its tasks are.
func (s *Schedule) parseTask(spec *Spec) *FieldError {
	if err := CheckName(spec.Name); err != nil {
		bad, _ := err.(*FieldError)
		return bad
	}
	if err := core.CheckName("type", spec.Type); err != nil {
		return &FieldError{Field: "type", Text: err.Error()}
	}
	switch n := len(spec.Input); {
	case n == 0:
		return wrong("input", "is not said, want the one that each task has, such as {}")
	case n > inputBytesMax:
		return wrong("input", "has %d bytes, the limit is %d", n, inputBytesMax)
	}
	if err := quickjson.Check("input", spec.Input); err != nil {
		return &FieldError{Field: "input", Text: err.Error()}
	}
	if spec.PlanVersion < 0 {
		return wrong("plan_version", "is %d, want 1 or more, or none for the newest", spec.PlanVersion)
	}
	for key, value := range spec.Labels {
		s.Labels = append(s.Labels, core.Label{Key: key, Value: value})
	}
	sortLabels(s.Labels)
	if err := core.CheckLabels(s.Labels); err != nil {
		return &FieldError{Field: "labels", Text: "labels: " + err.Error()}
	}
	var bad *FieldError
	s.CompleteBy, bad = duration("complete_by", spec.CompleteBy, 0, time.Millisecond, core.DurationMax)
	return bad
}

// parseTimes reads when its tasks are submitted.
func (s *Schedule) parseTimes(spec *Spec) *FieldError {
	var bad *FieldError
	switch {
	case spec.Cron == "" && spec.Every == "":
		return wrong("cron", "is empty, and so is every: want one of them")
	case spec.Cron != "" && spec.Every != "":
		return wrong("every", "is given beside cron: want one of them")
	case spec.Every != "":
		if spec.Zone != "" {
			return wrong("zone", "is given beside every, which counts elapsed time: leave it out, or write it as cron")
		}
		if s.every, bad = duration("every", spec.Every, 0, everyMin, core.DurationMax); bad != nil {
			return bad
		}
		if s.every%time.Second != 0 {
			return wrong("every", "%s is no whole number of seconds", spec.Every)
		}
		s.zone = time.UTC
		if s.from.IsZero() {
			s.from = time.Unix(0, 0).UTC()
		}
	default:
		if s.zone, bad = zoneOf(spec.Zone); bad != nil {
			return bad
		}
		s.line = spec.Cron
		if s.cron, bad = parseCron(spec.Cron); bad != nil {
			return bad
		}
	}
	for _, end := range []struct {
		field string
		at    time.Time
	}{{"from", spec.From}, {"until", spec.Until}} {
		if y := end.at.Year(); !end.at.IsZero() && (y < yearMin || y > yearMax) {
			return wrong(end.field, "%s, want a year from %d to %d", end.at.Format(time.RFC3339), yearMin, yearMax)
		}
	}
	if !s.until.IsZero() && !s.until.After(s.from) {
		return wrong("until", "%s is not after from, %s", s.until.Format(time.RFC3339), s.from.Format(time.RFC3339))
	}
	s.from = ceilSecond(s.from)
	return nil
}

// parseBounds reads how runs are spread, and what becomes of those that cannot be in time.
func (s *Schedule) parseBounds(spec *Spec) *FieldError {
	var bad *FieldError
	if s.jitter, bad = duration("jitter", spec.Jitter, 0, time.Millisecond, jitterMax); bad != nil {
		return bad
	}
	if s.catchUp, bad = duration("catch_up", spec.CatchUp, catchUpDefault, catchUpMin, catchUpMax); bad != nil {
		return bad
	}
	if s.CatchUps = spec.CatchUps; s.CatchUps == 0 {
		s.CatchUps = CatchUpsDefault
	}
	if s.CatchUps < 1 || s.CatchUps > catchUpsMax {
		return wrong("catch_ups", "is %d, want 1 to %d", spec.CatchUps, catchUpsMax)
	}
	switch s.Overlap {
	case "":
		s.Overlap = OverlapSkip
	case OverlapSkip, OverlapQueue, OverlapAll:
	default:
		return wrong("overlap", "is %s, want skip, queue or all", core.QuoteShort(s.Overlap))
	}
	switch s.Queue = spec.Queue; {
	case s.Queue == 0:
		s.Queue = queueDefault
	case s.Overlap != OverlapQueue:
		return wrong("queue", "is %d, but overlap is %s: it goes with overlap queue", spec.Queue, s.Overlap)
	case s.Queue < 1 || s.Queue > queueMax:
		return wrong("queue", "is %d, want 1 to %d", spec.Queue, queueMax)
	}
	return nil
}

// CheckFires refuses a schedule without any run after a time. Error: *FieldError, with the reason.
func (s *Schedule) CheckFires(now time.Time) error {
	if _, ok := s.Next(now); ok {
		return nil
	}
	if !s.until.IsZero() && !s.until.After(now) {
		return wrong("until", "%s has passed: now is %s, and no run is left", s.until.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if s.cron == nil {
		return wrong("until", "%s is before the first run", s.until.Format(time.RFC3339))
	}
	endless := *s
	endless.until = time.Time{}
	if first, ok := endless.Next(now); ok {
		return wrong("until", "%s is before the first run, %s", s.until.Format(time.RFC3339), first.In(s.zone).Format(time.RFC3339))
	}
	return wrong("cron", "%s would never run: it names no day of the next %d years, as 30 February is none", core.QuoteShort(s.line), searchYears)
}

// duration reads a length of time within its limits.
func duration(field, text string, otherwise, least, most time.Duration) (time.Duration, *FieldError) {
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, wrong(field, "%s is no duration, want one such as 90s, 15m or 24h", core.QuoteShort(text))
	}
	if d < least || d > most {
		return 0, wrong(field, "is %s, want %v to %v", text, least, most)
	}
	return d, nil
}

// parseCron reads five fields. It takes no names for whole lines and no zone within the line.
func parseCron(line string) (cron.Schedule, *FieldError) {
	if len(line) > cronBytesMax {
		return nil, wrong("cron", "has %d bytes, the limit is %d", len(line), cronBytesMax)
	}
	if n := len(strings.Fields(line)); n != 5 || strings.ContainsAny(line, "@=") {
		return nil, wrong("cron", "%s has %d fields, want 5: minute, hour, day of month, month, day of week", core.QuoteShort(line), n)
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)
	if err == nil {
		var found cron.Schedule
		if found, err = parser.WithMaxSearchYears(searchYears).Parse(line); err == nil {
			if fields, ok := found.(*cron.SpecSchedule); ok {
				fields.Location = time.UTC // of the clock on the wall, whatever the machine's zone is
				return fields, nil
			}
			err = fmt.Errorf("it is a %T", found)
		}
	}
	return nil, wrong("cron", "%s: %s", core.QuoteShort(line), cronError(err))
}

func ceilSecond(t time.Time) time.Time {
	if cut := t.Truncate(time.Second); !cut.Equal(t) {
		return cut.Add(time.Second)
	}
	return t
}

// cronError is what the library says of a line, without how it was found.
func cronError(err error) string {
	text, _, parsed := strings.Cut(err.Error(), ": strconv.")
	if parsed {
		text += ": want a number, or for a month jan to dec, for a day of the week sun to sat"
	}
	return text
}
