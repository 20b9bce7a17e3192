package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
)

// alertBytesMax bounds an alert on the wire.
const alertBytesMax = 64 << 10

// alertJSON is an alert as the stream of alerts holds it.
type alertJSON struct {
	V        int               `json:"v"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Key      string            `json:"key,omitempty"`
	Node     string            `json:"node"`
	Shared   bool              `json:"shared,omitempty"`
	Phase    core.AlertPhase   `json:"phase"`
	Severity core.Severity     `json:"severity"`
	Text     string            `json:"text"`
	Error    string            `json:"error,omitempty"`
	Since    string            `json:"since,omitempty"`
	At       string            `json:"at"`
	LastsMS  int64             `json:"lasts_ms,omitempty"`
	Times    int               `json:"times,omitempty"`
	More     map[string]string `json:"more,omitempty"` // the attributes
}

// AppendAlert appends the JSON of an alert: what duly.alerts.<name> carries. Its texts are cut to their limits.
func AppendAlert(dst []byte, a core.Alert) ([]byte, error) {
	a = a.Short()
	j := alertJSON{V: Version, ID: a.ID, Name: a.Name, Key: core.ShortText(a.Key, core.AlertAttrMax), Node: a.Node, Shared: a.Shared, Phase: a.Phase,
		Severity: a.Severity, Text: a.Text, Error: a.Error, At: a.At.Time().Format(core.TimeLayout), LastsMS: a.LastsMS, Times: a.Times}
	if a.Since != 0 {
		j.Since = a.Since.Time().Format(core.TimeLayout)
	}
	if len(a.Attrs) > 0 {
		j.More = make(map[string]string, len(a.Attrs))
		for _, attr := range a.Attrs {
			j.More[attr.Name] = attr.Value
		}
	}
	data, err := json.Marshal(j)
	if err != nil {
		return dst, fmt.Errorf("alert %s: %w", a.Name, err)
	}
	return append(dst, data...), nil
}

// DecodeAlert reads what AppendAlert wrote. Errors wrap ErrUndecodable.
func DecodeAlert(data []byte) (core.Alert, error) {
	if len(data) > alertBytesMax {
		return core.Alert{}, fmt.Errorf("%w: an alert has %d bytes, the limit is %d", ErrUndecodable, len(data), alertBytesMax)
	}
	var j alertJSON
	if err := decodeOf("alert", data, &j, &j.V); err != nil {
		return core.Alert{}, err
	}
	switch {
	case core.CheckName("alert", j.Name) != nil:
		return core.Alert{}, fmt.Errorf("%w: alert %s is no name", ErrUndecodable, Quote([]byte(j.Name)))
	case j.ID == "":
		return core.Alert{}, fmt.Errorf("%w: alert %s has no id", ErrUndecodable, j.Name)
	case j.Phase != core.AlertBegins && j.Phase != core.AlertEnds && j.Phase != core.AlertOnce:
		return core.Alert{}, fmt.Errorf("%w: alert %s has the phase %s, want begin, end or once", ErrUndecodable, j.Name, Quote([]byte(j.Phase)))
	}
	a := core.Alert{ID: j.ID, Name: j.Name, Key: j.Key, Node: j.Node, Shared: j.Shared, Phase: j.Phase, Severity: j.Severity, Text: j.Text, Error: j.Error,
		LastsMS: j.LastsMS, Times: j.Times}
	for _, t := range []struct {
		text string
		to   *core.Instant
	}{{j.Since, &a.Since}, {j.At, &a.At}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, t.text)
		if err != nil {
			return core.Alert{}, fmt.Errorf("%w: alert %s: %w", ErrUndecodable, j.Name, err)
		}
		*t.to = core.InstantOf(at)
	}
	for name, value := range j.More {
		a.Attrs = append(a.Attrs, core.AlertAttr{Name: name, Value: value})
	}
	slices.SortFunc(a.Attrs, func(x, y core.AlertAttr) int { return cmp.Compare(x.Name, y.Name) })
	return a.Short(), nil
}
