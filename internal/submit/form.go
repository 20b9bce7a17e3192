// Package submit is a submission as its submitter says it: one struct that every door fills, one codec between it and what
// it travels in, one check.
//
// A request on NATS, a message of the stream endpoint, a request over HTTP and a row of an outbox carry it as headers
// ([Form.Header], [Form.ReadHeader]); a line of a bulk submission as JSON, by the tags of its fields. [Form.Read] makes of
// it what the task stream holds. A new field needs its tags and its part of Read for all doors; its place in
// core.Submission, in the packs of internal/wire, and in taskOf and submissionOf of the scheduler; and an option of the Go
// client (SubmitOption) and of duly submit.
package submit

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// Form is a submission as it was handed in: nothing of it is checked.
type Form struct {
	Type       string          `json:"type"`
	ID         string          `json:"id,omitempty" doc:"absent: a new one, so that the line sent again is another task"`
	Input      json.RawMessage `json:"input"`
	CompleteBy string          `json:"complete_by,omitempty" header:"Duly-Complete-By" doc:"the deadline: RFC 3339, or a duration as 30s"`
	StartAt    string          `json:"start_at,omitempty" header:"Duly-Start-At" doc:"nothing of it begins before: RFC 3339, or a delay as 2h; the plan's time counts from then"`
	Version    string          `json:"plan_version,omitempty" header:"Duly-Plan-Version" doc:"of the plan: a number, or newest"`
	ReplyTo    string          `json:"reply_to,omitempty" header:"Duly-Reply-To" doc:"NATS subject for statuses"`
	Trace      string          `json:"traceparent,omitempty" header:"traceparent" doc:"W3C trace context"`
	Labels     string          `json:"-" header:"Duly-Labels" doc:"key=value, joined by commas"`

	// Ago is how long it had been written down when it was handed in: durations count from then. It is of an outbox.
	Ago time.Duration `json:"-"`
}

// The headers that Duly has a meaning for all begin with Prefix, but for that of the trace. Unreadable stands for a header
// that could not be read.
const (
	Prefix      = "Duly-"
	Unreadable  = Prefix + "Unreadable"
	headerTrace = "traceparent"
)

// field is one that travels as a header.
type field struct {
	header string
	index  int
}

// fields are those with a header, in their order.
var fields = func() (all []field) {
	t := reflect.TypeFor[Form]()
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("header"); name != "" {
			all = append(all, field{name, i})
		}
	}
	return all
}()

func (f *Form) text(i int) *string {
	return reflect.ValueOf(f).Elem().Field(i).Addr().Interface().(*string)
}

// Headers are the names of the headers with Duly's prefix that a submission may have.
func Headers() (names []string) {
	for _, f := range fields {
		if strings.HasPrefix(f.header, Prefix) {
			names = append(names, f.header)
		}
	}
	return names
}

// Bytes is how many bytes its texts have.
func (f *Form) Bytes() int {
	n := len(f.Type) + len(f.ID) + len(f.Input)
	for _, is := range fields {
		n += len(*f.text(is.index))
	}
	return n
}

// Header is what it says besides type, id and input; nil: nothing.
func (f *Form) Header() map[string][]string {
	var h map[string][]string
	for _, is := range fields {
		if value := *f.text(is.index); value != "" {
			if h == nil {
				h = make(map[string][]string, len(fields))
			}
			h[is.header] = []string{value}
		}
	}
	return h
}

// ReadHeader takes what a header says; names count in any case. Headers that are not Duly's are passed over, and so is a
// trace that is given twice: a trace is a help. Error: an [Error] that is [ErrHeader] about one that there is not, so that
// nothing said is left out, or that is given twice.
func (f *Form) ReadHeader(header map[string][]string) error {
	if len(header) == 0 {
		return nil
	}
	given := make([][]string, len(fields))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		i := slices.IndexFunc(fields, func(is field) bool { return strings.EqualFold(is.header, name) })
		switch {
		case i >= 0:
			given[i] = append(given[i], header[name]...)
		case name == Unreadable:
			return refuse(ErrHeader, "the header of the message cannot be read: it is cut, or a line of it has no colon")
		case len(name) >= len(Prefix) && strings.EqualFold(name[:len(Prefix)], Prefix):
			return refuse(ErrHeader, "header %s is not known here; of Duly's own a submission takes %s", core.QuoteShort(name), strings.Join(Headers(), ", "))
		}
	}
	for i, values := range given {
		switch {
		case len(values) == 1:
			*f.text(fields[i].index) = values[0]
		case len(values) > 1 && fields[i].header != headerTrace:
			return refuse(ErrHeader, "header %s is given %d times (%s, %s), want once", fields[i].header, len(values), core.QuoteShort(values[0]), core.QuoteShort(values[1]))
		}
	}
	return nil
}

// FormatTime writes a time as headers have it: RFC 3339 with microseconds.
func FormatTime(at time.Time) string { return core.InstantOf(at).Time().Format(core.TimeLayout) }

func refuse(cause error, format string, args ...any) *Error {
	return &Error{Cause: cause, text: fmt.Sprintf(format, args...)}
}
