package core

// Severity says how much an alert asks of an operator.
type Severity string

// The severities, the lowest first.
const (
	SeverityInfo     Severity = "info"     // worth knowing
	SeverityWarning  Severity = "warning"  // something is not as it should be, and work goes on
	SeverityCritical Severity = "critical" // work stands still, or an operator has to act
)

// AlertPhase says what an alert is about.
type AlertPhase string

// The phases.
const (
	AlertBegins AlertPhase = "begin"
	AlertEnds   AlertPhase = "end"
	AlertOnce   AlertPhase = "once" // an event that has no end
)

// Limits of an alert, so that one always fits a message and a mail.
const (
	alertTextMax  = 2048 // bytes of Text and of Error
	alertAttrsMax = 16   // attributes
	AlertAttrMax  = 256  // bytes of an attribute's value
)

// Alert is one durable event for operators: a trouble that begins or ends, or something that happened.
type Alert struct {
	ID       string // the same whenever this alert is told again
	Name     string // of the condition or the kind of event; docs/operations/health.md lists them
	Key      string // the resource, where a condition has several; may be empty
	Node     string // that tells it
	Shared   bool   // every node sees the same trouble: it begins with the first that tells it and ends with the last
	Phase    AlertPhase
	Severity Severity
	Text     string
	Error    string // the last reason; may be empty
	Since    Instant
	At       Instant // when it was told
	LastsMS  int64   // how long the trouble has lasted, or lasted
	Times    int     // how often it began, or how many events it stands for
	Attrs    []AlertAttr
}

// AlertAttr is one more word about an alert.
type AlertAttr struct{ Name, Value string }

// Short returns the alert with its texts cut to the limits.
func (a Alert) Short() Alert {
	a.Text, a.Error = ShortText(a.Text, alertTextMax), ShortText(a.Error, alertTextMax)
	attrs := make([]AlertAttr, 0, min(len(a.Attrs), alertAttrsMax))
	for _, attr := range a.Attrs[:min(len(a.Attrs), alertAttrsMax)] {
		attrs = append(attrs, AlertAttr{ShortText(attr.Name, NameBytesMax), ShortText(attr.Value, AlertAttrMax)})
	}
	a.Attrs = attrs
	return a
}

// gaveUpBegin is how Task.Why begins when an undo gave up; see Task.left.
const gaveUpBegin = "the undo of step "

// UndoGaveUp reports whether the text of an ending in error says that an undo gave up.
func UndoGaveUp(text string) bool {
	return len(text) >= len(gaveUpBegin) && text[:len(gaveUpBegin)] == gaveUpBegin
}

// TraceSampled reports whether a traceparent, as CleanTrace returns it, asks for spans.
func TraceSampled(trace string) bool {
	if len(trace) < traceBytes {
		return false
	}
	c := trace[traceBytes-1]
	if c >= 'a' {
		c -= 'a' - 10 // its parity is all that counts
	}
	return c&1 == 1
}
