package console

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
)

// number writes n with commas between thousands.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// duration writes d with two units at most.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + duration(-d)
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strings.TrimSuffix(strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64), ".0") + " s"
	case d < time.Hour:
		return two(int64(d/time.Minute), "min", int64(d%time.Minute/time.Second), "s")
	case d < 48*time.Hour:
		return two(int64(d/time.Hour), "h", int64(d%time.Hour/time.Minute), "min")
	}
	return two(int64(d/(24*time.Hour)), "d", int64(d%(24*time.Hour)/time.Hour), "h")
}

func two(a int64, unitA string, b int64, unitB string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unitA)
	}
	return fmt.Sprintf("%d %s %d %s", a, unitA, b, unitB)
}

// relative says where t is, seen from now, with one unit: the same words as app.js.
func relative(t, now time.Time) string {
	d := now.Sub(t)
	ahead := d < 0
	if ahead {
		d = -d
	}
	var text string
	switch {
	case d < time.Second:
		return "now"
	case d < 2*time.Minute:
		text = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		text = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		text = fmt.Sprintf("%d d", int(d.Hours()/24))
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}

const exactLayout = "2006-01-02 15:04:05"

// timeOf takes the two kinds of time that the ports have; zero: none.
func timeOf(v any) time.Time {
	switch t := v.(type) {
	case time.Time:
		return t
	case core.Instant:
		if t != 0 {
			return t.Time()
		}
	}
	return time.Time{}
}

// when is a time in a table: relative, and exact while its row has the focus or the pointer.
func when(v any, now time.Time) template.HTML { return stamp(v, now, "") }

// whenAlone is a time outside a table: it takes the focus itself to show the exact one.
func whenAlone(v any, now time.Time) template.HTML { return stamp(v, now, ` tabindex="0"`) }

func stamp(v any, now time.Time, attributes string) template.HTML {
	t := timeOf(v)
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	utc := t.UTC()
	return template.HTML(fmt.Sprintf(`<time class="t" datetime="%s"%s><span class="rel">%s</span><span class="abs">%s</span></time>`,
		utc.Format(time.RFC3339Nano), attributes, html.EscapeString(relative(t, now)), utc.Format(exactLayout)+"Z"))
}

// exact is a time that is never relative: in a journal, milliseconds matter.
func exact(v any) template.HTML {
	t := timeOf(v)
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	utc := t.UTC()
	return template.HTML(fmt.Sprintf(`<time class="x" datetime="%s">%s</time>`, utc.Format(time.RFC3339Nano), utc.Format(exactLayout+".000")+"Z"))
}

// look is how a state is shown: never by colour alone.
type look struct{ Icon, Word, Class string }

var looks = map[string]look{
	"pending":      {"clock", "pending", "calm"},
	"processing":   {"play", "processing", "busy"},
	"processed":    {"check", "processed", "good"},
	"undoing":      {"back", "undoing", "busy"},
	"undone":       {"back", "undone", "calm"},
	"error":        {"cross", "error", "bad"},
	"waiting":      {"clock", "waiting", "calm"},
	"running":      {"play", "running", "busy"},
	"done":         {"check", "done", "good"},
	"failed":       {"cross", "failed", "bad"},
	"skipped":      {"minus", "skipped", "calm"},
	"signalled":    {"check", "signalled", "calm"},
	"preview":      {"eye", "preview", "calm"},
	"paused":       {"pause", "paused", "warn"},
	"braked":       {"stop", "braked", "bad"},
	"stopped":      {"stop", "stopped", "calm"},
	"asked":        {"play", "asked", "busy"},
	"failed_again": {"cross", "failed again", "bad"},
	"unknown":      {"question", "unknown", "warn"},
	"stands":       {"check", "done, stands", "good"},
	"left":         {"warning", "still there", "bad"},
	"refused":      {"cross", "refused, left nothing", "calm"},
	"gave up":      {"warning", "gave up", "bad"},
	"open":         {"warning", "open", "bad"},
	"accepted":     {"check", "accepted", "calm"},
}

func lookOf(state any) look {
	word := fmt.Sprint(state)
	if l, ok := looks[word]; ok {
		return l
	}
	return look{"question", word, "calm"}
}

// badge is a state in a frame: an icon, a word and a colour.
func badge(state any) template.HTML {
	l := lookOf(state)
	return template.HTML(fmt.Sprintf(`<span class="badge %s">%s%s</span>`, l.Class, icon(l.Icon), html.EscapeString(l.Word)))
}

// paths are the icons: one path of 16 by 16 each, drawn with a line.
var paths = map[string]string{
	"check":    "M3 8.5l3.2 3.2L13 5",
	"cross":    "M4 4l8 8M12 4l-8 8",
	"clock":    "M8 2a6 6 0 100 12A6 6 0 008 2M8 5v3.2l2.2 1.6",
	"play":     "M5.5 3.5v9l7-4.5z",
	"pause":    "M5.5 3.5v9M10.5 3.5v9",
	"stop":     "M4 4h8v8H4z",
	"back":     "M6 4L2.8 7.2 6 10.4M3 7.2h6.5a3.2 3.2 0 010 6.4H7",
	"minus":    "M4 8h8",
	"question": "M5.6 6a2.4 2.4 0 114 1.8c-.9.8-1.6 1.2-1.6 2.2M8 12.6v.2",
	"warning":  "M8 2.5L14.2 13H1.8zM8 6.5v3M8 11.2v.2",
	"eye":      "M1.5 8S4 3.8 8 3.8 14.5 8 14.5 8 12 12.2 8 12.2 1.5 8 1.5 8M8 6.4a1.6 1.6 0 100 3.2 1.6 1.6 0 000-3.2",
	"tasks":    "M2.5 4h1M6 4h7.5M2.5 8h1M6 8h7.5M2.5 12h1M6 12h7.5",
	"home":     "M2.5 7.5L8 3l5.5 4.5M4 6.5V13h8V6.5",
	"group":    "M2.5 3.5h11v3h-11zM2.5 9.5h11v3h-11z",
	"reply":    "M6.5 3.5L3 7l3.5 3.5M3 7h6.5a3.5 3.5 0 013.5 3.5V13",
	"wave":     "M2 5c2-2 4 2 6 0s4 2 6 0M2 11c2-2 4 2 6 0s4 2 6 0",
	"agent":    "M3 5.5h10v7H3zM8 5.5V2.8M6 8.6v.4M10 8.6v.4",
	"plan":     "M6 2.5h4v3H6zM2 10.5h4v3H2zM10 10.5h4v3h-4zM8 5.5v2.5M4 10.5V8h8v2.5",
	"slices":   "M8 2v12M2 8h12M8 2a6 6 0 100 12A6 6 0 008 2",
	"audit":    "M4 2.5h6l2.5 2.5v8.5H4zM6 7h4M6 9.5h4",
	"gear":     "M8 5.8a2.2 2.2 0 100 4.4 2.2 2.2 0 000-4.4M8 1.8v2M8 12.2v2M1.8 8h2M12.2 8h2M3.6 3.6L5 5M11 11l1.4 1.4M12.4 3.6L11 5M5 11l-1.4 1.4",
	"books":    "M3 3h4a1 1 0 011 1v9a1 1 0 00-1-1H3zM13 3H9a1 1 0 00-1 1v9a1 1 0 011-1h4z",
	"lock":     "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 015 0v2.5M8 10v1.2",
	"search":   "M7 2.8a4.2 4.2 0 100 8.4 4.2 4.2 0 000-8.4M10.2 10.2l3.3 3.3",
}

func icon(name string) template.HTML {
	return template.HTML(`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false"><path d="` + paths[name] + `"/></svg>`)
}

// sparkline draws values as a line, which is broken where one is not a number; the table beside it has the numbers.
func sparkline(values []float64) template.HTML {
	const w, h = 120.0, 28.0
	if len(values) < 2 {
		return ""
	}
	top := 0.0
	for _, v := range values {
		if v > top {
			top = v
		}
	}
	if top == 0 {
		top = 1
	}
	var b strings.Builder
	begin := `<polyline points="`
	for i, v := range values {
		if math.IsNaN(v) {
			begin = `"/><polyline points="`
			continue
		}
		b.WriteString(begin)
		begin = " "
		fmt.Fprintf(&b, "%.1f,%.1f", float64(i)/float64(len(values)-1)*w, h-1-v/top*(h-2))
	}
	if b.Len() > 0 {
		b.WriteString(`"/>`)
	}
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %g %g" width="%g" height="%g" aria-hidden="true" focusable="false" preserveAspectRatio="none">%s</svg>`,
		w, h, w, h, strings.TrimPrefix(b.String(), `"/>`)))
}

// decimal writes a rate or a latency with three digits that count.
func decimal(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–" // it was not looked at
	case v >= 100 || v == math.Trunc(v):
		return number(int64(math.Round(v)))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// percent of n in total, as a width for a bar.
func percent(n, total int64) string {
	if total == 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(n)/float64(total), 'f', 2, 64) + "%"
}

// bar draws n against the largest of its column.
func bar(n, peak int64) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg class="meter" width="72" height="8" aria-hidden="true" focusable="false"><rect class="track" width="100%%" height="8" rx="2"/><rect class="fill" width="%s" height="8" rx="2"/></svg>`, percent(n, peak)))
}

// shares draws parts of a whole side by side. The table beside it has the numbers.
func shares(parts []outcome) template.HTML {
	var b strings.Builder
	b.WriteString(`<svg class="shares" width="100%" height="12" aria-hidden="true" focusable="false">`)
	x, total := int64(0), int64(0)
	for i := range parts {
		total += parts[i].N
	}
	for i := range parts {
		if parts[i].N > 0 {
			fmt.Fprintf(&b, `<rect class="%s" x="%s" width="%s" height="12"/>`, parts[i].Look.Class, percent(x, total), percent(parts[i].N, total))
		}
		x += parts[i].N
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// dict makes a map of pairs, to give a template several values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values, want pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: name %d is %T", i/2, pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// jsonText is a value as JSON, for an attribute.
func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// buttonRow is a button of any kind.
type buttonRow struct {
	ID, Title, URL, Why string
	Danger              bool
}

func rowsOf(buttons []actionButton) []buttonRow {
	all := make([]buttonRow, len(buttons))
	for i, b := range buttons {
		all[i] = buttonRow{string(b.Action), b.Title, b.URL, b.Why, b.Danger}
	}
	return all
}

// Buttons are the actions of a task.
func (d taskData) Buttons() []buttonRow { return rowsOf(d.Actions) }

// ButtonRows are the actions on a whole group.
func (d failureData) ButtonRows() []buttonRow { return rowsOf(d.Buttons) }

// ButtonRows are the changes of an operation.
func (d operationData) ButtonRows() []buttonRow {
	all := make([]buttonRow, len(d.Buttons))
	for i, b := range d.Buttons {
		all[i] = buttonRow{b.Change, b.Title, b.URL, b.Why, b.Danger}
	}
	return all
}

// Size is the length of a document.
func (d *document) Size() int64 { return int64(d.Bytes) }

// Lines64 is how many lines it has when laid out.
func (d *document) Lines64() int64 { return int64(d.Lines) }

// about is an expected number of tasks.
func about(n float64) string {
	if n > 0 && n < 0.5 {
		return "< 1"
	}
	return number(int64(math.Round(n)))
}

// ofMS is a duration in milliseconds.
func ofMS(ms float64) string { return duration(time.Duration(ms * float64(time.Millisecond))) }

// chanceWord is a chance in whole percent.
func chanceWord(c float64) string { return strconv.Itoa(int(math.Round(100*c))) + " %" }
