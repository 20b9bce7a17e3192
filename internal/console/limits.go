package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// agentRow is one agent in the list.
type agentRow struct {
	operate.Agent
	Limit *operate.Limit // nil: it has none
	Only  bool           // no plan names it and nothing waits for it: there is the limit alone
}

// agentRows joins agents and limits, by name.
func agentRows(all []operate.Agent, limits []operate.Limit) []agentRow {
	rows := make([]agentRow, len(all), len(all)+len(limits))
	at := make(map[string]int, len(all))
	for i := range all {
		rows[i].Agent = all[i]
		at[all[i].Name] = i
	}
	for i := range limits {
		k, known := at[limits[i].Agent]
		if !known {
			k = len(rows)
			rows = append(rows, agentRow{Agent: operate.Agent{Name: limits[i].Agent, Instances: -1}, Only: true})
		}
		rows[k].Limit = &limits[i]
	}
	slices.SortStableFunc(rows, func(a, b agentRow) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}

// limitsNow are all limits: one reading serves all tabs for a moment, until one is changed here.
func (c *console) limitsNow(ctx context.Context) ([]operate.Limit, error) {
	return c.limits.get(ctx, c.Now, c.Limits.Limits)
}

// keysWord says how many keys are in use, and how many of them are shown.
func keysWord(l *operate.Limit) string {
	text := say.Of("limit.keys", "n", l.Keys)
	if shown := int64(len(l.BusiestKeys)); shown < l.Keys {
		text += fmt.Sprintf("; the busiest %d", shown)
	}
	return text
}

// rateWord is a rate with all of its thousandths.
func rateWord(rate float64) string {
	whole, part, _ := strings.Cut(strconv.FormatFloat(rate, 'f', -1, 64), ".")
	if n, err := strconv.ParseInt(whole, 10, 64); err == nil {
		whole = number(n)
	}
	if part == "" {
		return whole
	}
	return whole + "." + part
}

// changeLimit sets or removes the limit of an agent.
func (c *console) changeLimit(r *http.Request) (*dialog, error) {
	agent, change := r.PathValue("agent"), r.PathValue("change")
	d := &dialog{URL: c.url("agents", agent, "limit", change), Back: c.url("agents"), ReasonIs: true}
	name := core.ShortText(agent, core.NameBytesMax)
	switch change {
	case "set":
		d.Title, d.Go = "Limit of "+name, "Set"
		d.What, d.told = say.Of("limit.what"), say.Of("limit.set")
		d.Fields = []field{
			{Name: "concurrent", Label: "Concurrent", Hint: say.Of("limit.concurrent")},
			{Name: "rate", Label: "Rate", Hint: say.Of("limit.rate")},
			{Name: "key", Label: "Key", Hint: say.Of("limit.key")},
			{Name: "key_concurrent", Label: "Key concurrent", Hint: say.Of("limit.key-concurrent")},
			{Name: "key_rate", Label: "Key rate", Hint: say.Of("limit.key-rate")},
		}
		d.do = func(ctx context.Context, typed form) error {
			defer c.limits.forget()
			l, bad := limitOf(typed, agent)
			if bad != nil {
				return bad
			}
			_, err := c.Limits.SetLimit(ctx, actorOf(r), l)
			return err
		}
		if r.Method == http.MethodGet {
			return d, c.fillLimit(r, d)
		}
	case "remove":
		d.Title, d.Go = say.Of("limit.remove-of", "agent", name), "Remove"
		d.What, d.told = say.Of("limit.remove"), say.Of("limit.removed")
		d.do = func(ctx context.Context, typed form) error {
			defer c.limits.forget()
			return c.Limits.RemoveLimit(ctx, actorOf(r), agent, typed("reason"))
		}
	default:
		return nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("limit.no-change", "change", core.QuoteShort(change))}
	}
	return d, nil
}

// fillLimit shows the limit as it is now.
func (c *console) fillLimit(r *http.Request, d *dialog) error {
	ctx, cancel := reading(r)
	defer cancel()
	all, err := c.Limits.Limits(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(all, func(l operate.Limit) bool { return l.Agent == r.PathValue("agent") }); i >= 0 {
		is := limitValues(&all[i])
		for k := range d.Fields {
			d.Fields[k].Value = is[d.Fields[k].Name]
		}
	}
	return nil
}

// limitValues are the fields of a limit as a form has them.
func limitValues(l *operate.Limit) map[string]string {
	values := map[string]string{"key": l.Key}
	for name, n := range map[string]float64{"concurrent": float64(l.Concurrent), "rate": l.Rate, "key_concurrent": float64(l.KeyConcurrent), "key_rate": l.KeyRate} {
		if n != 0 {
			values[name] = strconv.FormatFloat(n, 'f', -1, 64)
		}
	}
	return values
}

// limitOf reads a limit from its form. What its numbers may be is for the port to say.
func limitOf(get form, agent string) (operate.SetLimit, *operate.Refusal) {
	wrong := func(field, format string, args ...any) *operate.Refusal {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	l := operate.SetLimit{Agent: agent, Key: get("key"), Reason: get("reason"), EvenIfUnknown: get.insists(operate.EvenIfUnknown)}
	for _, f := range []struct {
		name string
		to   *int
	}{{"concurrent", &l.Concurrent}, {"key_concurrent", &l.KeyConcurrent}} {
		if get(f.name) == "" {
			continue
		}
		var err error
		if *f.to, err = strconv.Atoi(get(f.name)); err != nil || *f.to == 0 { // which could mean none as well as any number
			return l, wrong(f.name, "%s is %s, want a number of calls, 1 to %d.", f.name, core.QuoteShort(get(f.name)), core.ConcurrentMax)
		}
	}
	for _, f := range []struct {
		name string
		to   *float64
	}{{"rate", &l.Rate}, {"key_rate", &l.KeyRate}} {
		if get(f.name) == "" {
			continue
		}
		var err error
		if *f.to, err = strconv.ParseFloat(get(f.name), 64); err != nil || *f.to == 0 {
			return l, wrong(f.name, "%s is %s, want calls a second, 0.001 to %d.", f.name, core.QuoteShort(get(f.name)), core.RateMilliMax/1000)
		}
	}
	if l.Key != "" {
		if _, err := expr.NewKey(l.Key); err != nil {
			return l, wrong("key", "key: %v", err)
		}
	}
	return l, nil
}
