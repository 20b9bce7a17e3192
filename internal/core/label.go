package core

import (
	"errors"
	"fmt"
)

// Limits of the labels of a submission.
const (
	LabelsMax     = 8  // of one submission
	LabelBytesMax = 64 // of a label's key, and of its value
	// labelsTextMax bounds what ParseLabels looks at: all labels at their limits, with a space around each.
	labelsTextMax = LabelsMax * (2*LabelBytesMax + 4)
)

// ErrLabel is wrapped by every error about labels.
var ErrLabel = errors.New("label refused")

// Label is one label of a submission: tasks are found, listed and paused by it.
type Label struct{ Key, Value string }

// String is the label as headers and filters have it, key=value.
func (l Label) String() string { return l.Key + "=" + l.Value }

// EventsLabel is the key of the label that asks for an event about the task's creation. CheckLabel takes StatusCreated for its
// value alone.
const EventsLabel = "duly-events"

// TellsCreated reports whether labels ask for an event about the task's creation.
func TellsCreated(labels []Label) bool {
	for i := range labels {
		if labels[i].Key == EventsLabel {
			return true
		}
	}
	return false
}

// OfEngine reports whether the label says what Duly does with a task, and does not tell tasks apart.
func (l Label) OfEngine() bool { return l.Key == PriorityLabel || l.Key == EventsLabel }

// TenantOf is whose a task is: the value of its label with the key that an installation names; empty: nobody's.
func TenantOf(labels []Label, key string) (tenant string) {
	for i := range labels {
		if labels[i].Key == key {
			tenant = labels[i].Value
		}
	}
	return tenant
}

// TenantIn is TenantOf for labels as a header has them; what is wrong with them is refused elsewhere.
func TenantIn(text, key string) (tenant string) {
	if len(text) > labelsTextMax || key == "" {
		return ""
	}
	for from := 0; from < len(text); {
		to := from
		for to < len(text) && text[to] != ',' {
			to++
		}
		one := trimSpaces(text[from:to])
		if n := len(key); len(one) > n+1 && len(one) <= n+1+LabelBytesMax && one[n] == '=' && one[:n] == key {
			tenant = one[n+1:]
		}
		from = to + 1
	}
	return tenant
}

// CheckLabel accepts a key of 1 to LabelBytesMax characters of A–Z a–z 0–9 _ - and a value of 1 to LabelBytesMax
// printable characters of ASCII, less the comma, that neither begins nor ends with a space: what a header carries
// through every client and proxy unchanged. The value of PriorityLabel is a class,
// that of EventsLabel StatusCreated. Errors wrap ErrLabel.
func CheckLabel(l Label) error {
	if len(l.Key) > LabelBytesMax {
		return fmt.Errorf("%w: key %s has %d bytes, want 1 to %d", ErrLabel, QuoteShort(l.Key), len(l.Key), LabelBytesMax)
	}
	if err := CheckName("key", l.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrLabel, err)
	}
	if n := len(l.Value); n < 1 || n > LabelBytesMax {
		return fmt.Errorf("%w: value %s of key %s has %d bytes, want 1 to %d", ErrLabel, QuoteShort(l.Value), l.Key, n, LabelBytesMax)
	}
	for i := range len(l.Value) {
		if c := l.Value[i]; c < ' ' || c > '~' || c == ',' {
			return fmt.Errorf("%w: value %s of key %s: %s, want printable ASCII without a comma", ErrLabel, QuoteShort(l.Value), l.Key, runeAt(l.Value, i))
		}
	}
	if l.Value[0] == ' ' || l.Value[len(l.Value)-1] == ' ' {
		return fmt.Errorf("%w: value %s of key %s begins or ends with a space", ErrLabel, QuoteShort(l.Value), l.Key)
	}
	if l.Key == PriorityLabel {
		if _, err := ParseClass(l.Value); err != nil {
			return fmt.Errorf("%w: key %s: %w", ErrLabel, l.Key, err)
		}
	}
	if l.Key == EventsLabel && l.Value != StatusCreated {
		return fmt.Errorf("%w: key %s: %s, want %s", ErrLabel, l.Key, QuoteShort(l.Value), StatusCreated)
	}
	return nil
}

// CheckLabels accepts at most LabelsMax labels that CheckLabel does, each key once. Errors wrap ErrLabel.
func CheckLabels(labels []Label) error {
	if len(labels) > LabelsMax {
		return fmt.Errorf("%w: there are %d, the limit is %d", ErrLabel, len(labels), LabelsMax)
	}
	for i, l := range labels {
		if err := CheckLabel(l); err != nil {
			return err
		}
		for _, before := range labels[:i] {
			if before.Key == l.Key {
				return fmt.Errorf("%w: key %s is given twice", ErrLabel, l.Key)
			}
		}
	}
	return nil
}

// ParseLabel reads key=value. Errors wrap ErrLabel.
func ParseLabel(text string) (Label, error) {
	for i := range len(text) {
		if text[i] == '=' {
			l := Label{Key: text[:i], Value: text[i+1:]}
			return l, CheckLabel(l)
		}
	}
	return Label{}, fmt.Errorf("%w: %s has no =, want key=value", ErrLabel, QuoteShort(text))
}

// ParseLabels reads labels as a header has them: key=value, joined by commas, with spaces around each where one likes.
// An empty text is none. Errors wrap ErrLabel.
func ParseLabels(text string) ([]Label, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > labelsTextMax {
		return nil, fmt.Errorf("%w: labels have %d bytes, the limit is %d", ErrLabel, len(text), labelsTextMax)
	}
	var labels []Label
	for from := 0; from <= len(text); {
		to := from
		for to < len(text) && text[to] != ',' {
			to++
		}
		if len(labels) == LabelsMax {
			return nil, fmt.Errorf("%w: there are more than %d, the limit", ErrLabel, LabelsMax)
		}
		l, err := ParseLabel(trimSpaces(text[from:to]))
		if err != nil {
			return nil, err
		}
		labels = append(labels, l)
		from = to + 1
	}
	return labels, CheckLabels(labels)
}

func trimSpaces(s string) string {
	for len(s) > 0 && s[0] == ' ' {
		s = s[1:]
	}
	for len(s) > 0 && s[len(s)-1] == ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// FormatLabels is what ParseLabels reads; empty for none.
func FormatLabels(labels []Label) string {
	text := ""
	for i, l := range labels {
		if i > 0 {
			text += ","
		}
		text += l.String()
	}
	return text
}
