package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// incidentsMax bounds the troubles that are told apart; their document must fit the store. More are told without being
// compared with others.
const incidentsMax = 100

// goneAfter is how long a node must not be live before what it was in trouble with is over for it.
const goneAfter = time.Minute

// incident is one trouble that goes on, of one node or of several.
type incident struct {
	Begin  core.Alert `json:"begin"`            // as it was told
	Nodes  []string   `json:"nodes"`            // that are in it
	Told   bool       `json:"told"`             // its beginning is delivered
	Ending string     `json:"ending,omitempty"` // id of its end, which is being delivered
	Gone   bool       `json:"gone,omitempty"`   // it ends because its nodes are gone: no message of the stream says so
}

// incidents are all of them. They are stored, so that another sender goes on with them.
type incidents struct {
	open map[string]*incident
	gone map[string]time.Time // since when a node is not live
}

// keyOf is what makes two alerts be about one trouble.
func keyOf(a *core.Alert) string {
	if a.Shared {
		return a.Name + "/" + a.Key
	}
	return a.Name + "/" + a.Key + "@" + a.Node
}

// take takes an alert in and reports whether it is to be told. One that comes again because its delivery did not end is.
func (i *incidents) take(a *core.Alert) bool {
	key := keyOf(a)
	has := i.open[key]
	switch a.Phase {
	case core.AlertBegins:
		if has == nil || has.Ending != "" {
			if has == nil && len(i.open) >= incidentsMax {
				return true
			}
			i.open[key] = &incident{Begin: *a, Nodes: []string{a.Node}}
			return true
		}
		if !slices.Contains(has.Nodes, a.Node) {
			has.Nodes = append(has.Nodes, a.Node)
		}
		return has.Begin.ID == a.ID && !has.Told
	case core.AlertEnds:
		if has == nil {
			return false // its end was told, or its beginning is of before
		}
		if has.Ending != "" {
			return has.Ending == a.ID
		}
		has.Nodes = slices.DeleteFunc(has.Nodes, func(node string) bool { return node == a.Node })
		if len(has.Nodes) > 0 {
			return false
		}
		has.Ending = a.ID
		a.Since = has.Begin.Since
		return true
	}
	return true
}

// done notes that an alert is delivered, or given up.
func (i *incidents) done(a *core.Alert) {
	has := i.open[keyOf(a)]
	switch {
	case has == nil:
	case a.Phase == core.AlertBegins && has.Begin.ID == a.ID:
		has.Told = true
	case a.Phase == core.AlertEnds && has.Ending == a.ID:
		delete(i.open, keyOf(a))
	}
}

// sweep ends what only nodes are in trouble with that are gone, and returns the alerts about it.
func (i *incidents) sweep(live []string, now time.Time) (ends []core.Alert) {
	for _, node := range live {
		delete(i.gone, node)
	}
	known := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(i.open)) {
		has := i.open[key]
		if has.Ending != "" {
			continue
		}
		has.Nodes = slices.DeleteFunc(has.Nodes, func(node string) bool {
			known[node] = true
			if slices.Contains(live, node) {
				return false
			}
			if i.gone[node].IsZero() {
				i.gone[node] = now
			}
			return now.Sub(i.gone[node]) >= goneAfter
		})
		if len(has.Nodes) == 0 {
			has.Gone, has.Ending = true, endID(has.Begin.ID)
			ends = append(ends, has.end(now))
		}
	}
	maps.DeleteFunc(i.gone, func(node string, _ time.Time) bool { return !known[node] })
	return ends
}

// untold are the ends that sweep returned and that are not delivered: no message brings them again.
func (i *incidents) untold(now time.Time) (ends []core.Alert) {
	for _, key := range slices.Sorted(maps.Keys(i.open)) {
		if has := i.open[key]; has.Gone {
			ends = append(ends, has.end(now))
		}
	}
	return ends
}

// end is the alert about the end of a trouble whose nodes are gone.
func (has *incident) end(now time.Time) core.Alert {
	a := has.Begin
	a.ID, a.Phase, a.At, a.Error = has.Ending, core.AlertEnds, core.InstantOf(now), ""
	a.LastsMS = a.At.Sub(a.Since).Milliseconds()
	a.Text = say.Of("alert.node-gone", "text", a.Text)
	return a
}

func endID(begin string) string {
	sum := sha256.Sum256([]byte(begin + "/end"))
	return hex.EncodeToString(sum[:16])
}

// stateDocument is the form in which incidents are stored.
type stateDocument struct {
	V    int         `json:"v"`
	Open []*incident `json:"open"`
}

// Limits of the document: of a text in it, and of all of it, by the store. Troubles that do not fit are told again by the
// sender after this one.
const (
	stateTextMax  = 160
	stateBytesMax = 60 << 10
)

// loadIncidents reads what the sender before left; a document that cannot be read is nothing: its troubles are told
// again.
func loadIncidents(ctx context.Context, store operate.SettingStore) (*incidents, error) {
	i := &incidents{open: map[string]*incident{}, gone: map[string]time.Time{}}
	data, err := store.Setting(ctx, stateName)
	if errors.Is(err, core.ErrNotFound) {
		return i, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open alerts: %w", err)
	}
	var doc stateDocument
	if json.Unmarshal(data, &doc) == nil && doc.V == 1 {
		for _, has := range doc.Open {
			if has != nil {
				i.open[keyOf(&has.Begin)] = has
			}
		}
	}
	return i, nil
}

func (i *incidents) document() ([]byte, error) {
	doc := stateDocument{V: 1, Open: []*incident{}}
	for _, key := range slices.Sorted(maps.Keys(i.open)) {
		short := *i.open[key]
		short.Begin.Text, short.Begin.Error, short.Begin.Attrs = core.ShortText(short.Begin.Text, stateTextMax), "", nil
		doc.Open = append(doc.Open, &short)
	}
	for {
		data, err := json.Marshal(doc)
		if err != nil || len(data) <= stateBytesMax || len(doc.Open) == 0 {
			return data, err
		}
		doc.Open = doc.Open[:len(doc.Open)*3/4]
	}
}
