package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

var (
	limitColumns    = []string{"agent", "concurrent", "granted", "rate", "~granted_rate", "wanted", "holders", "keys", "~key", "~key_concurrent", "~key_rate", "~since", "by", "reason"}
	limitKeyColumns = []string{"key", "holders", "wanted", "places"}
)

type limitsCmd struct {
	List   limitsListCmd   `cmd:"" default:"withargs" help:"List the limits of agents, and what of them is granted and wanted."`
	Set    limitsSetCmd    `cmd:"" help:"Bound what an agent gets, over all nodes: so many calls at a time, so many a second, in all and for each key, for instance each customer. It takes the place of the limit that there is."`
	Keys   limitsKeysCmd   `cmd:"" help:"List the busiest keys of the limit of an agent, 20 at most: those that want most beyond what they have first."`
	Remove limitsRemoveCmd `cmd:"" help:"Let an agent have any number again."`
}

type limitsListCmd struct{ server }

// Run lists the limits.
func (c *limitsListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("limits"), nil, "limits", "no limit", limitColumns)
}

// limitBody is a request for a limit.
type limitBody struct {
	Concurrent    int     `json:"concurrent,omitempty"`
	Rate          float64 `json:"rate,omitempty"`
	Key           string  `json:"key,omitempty"`
	KeyConcurrent int     `json:"key_concurrent,omitempty"`
	KeyRate       float64 `json:"key_rate,omitempty"`
	Reason        string  `json:"reason"`
	insisting
}

type limitsSetCmd struct {
	Agent         string `arg:"" help:"Name of the agent."`
	Concurrent    *int   `help:"Calls at a time, 1 to 1000000 (default: any number)."`
	Rate          string `help:"Calls a second, or 6/min, or 100/h; thousandths of one a second count (default: any number)."`
	Key           string `help:"Expression (CEL) over input, type and labels of a task, such as input.customer: calls of tasks of which it is the same are bounded together by the next two."`
	KeyConcurrent *int   `help:"Calls of one key at a time, 1 to 1000000 (default: any number)."`
	KeyRate       string `help:"Calls of one key a second, as --rate (default: any number)."`
	insisting
	reasoned
}

// Run sets a limit.
func (c *limitsSetCmd) Run(ctx context.Context, std streams) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	if body.Reason, err = c.why(std); err != nil {
		return err
	}
	l, data, err := answered[operate.Limit](c.send(ctx, http.MethodPut, pathOf("limits", c.Agent), body, nil))
	if err != nil {
		return err
	}
	var says []string
	if of := boundWords(l.Concurrent, l.Rate); of != "" {
		says = append(says, of)
	}
	if of := boundWords(l.KeyConcurrent, l.KeyRate); of != "" {
		says = append(says, of+" for each "+l.Key)
	}
	return c.said(std, data, limitColumns, "%s", say.Of("limit.is", "agent", c.Agent, "limits", strings.Join(says, ", ")))
}

// body is what the flags ask for. A zero is refused: it could mean any number as well as none.
func (c *limitsSetCmd) body() (b limitBody, err error) {
	b.Key, b.insisting = c.Key, c.insisting
	for _, calls := range []struct {
		flag  string
		said  *int
		bound *int
	}{{"concurrent", c.Concurrent, &b.Concurrent}, {"key-concurrent", c.KeyConcurrent, &b.KeyConcurrent}} {
		if calls.said == nil {
			continue
		}
		if *calls.bound = *calls.said; *calls.bound == 0 {
			return b, misuse("%s: 0, want 1 or more; duly pause set --agent %s --reason 'why' keeps calls from it", calls.flag, c.Agent)
		}
	}
	if b.Rate, err = rateOf("rate", c.Rate); err != nil {
		return b, err
	}
	b.KeyRate, err = rateOf("key-rate", c.KeyRate)
	switch ofKey := b.KeyConcurrent != 0 || b.KeyRate != 0; {
	case err != nil:
		return b, err
	case (c.Key != "") != ofKey:
		return b, misuse("want --key with --key-concurrent, --key-rate or both")
	case b.Concurrent == 0 && b.Rate == 0 && !ofKey:
		return b, misuse("nothing to bound: want --concurrent, --rate or both, or --key")
	}
	return b, nil
}

// boundWords says what bounds calls; empty: nothing.
func boundWords(concurrent int, rate float64) string {
	var says []string
	if concurrent > 0 {
		says = append(says, fmt.Sprintf("%s at a time", callsWord(float64(concurrent))))
	}
	if rate > 0 {
		says = append(says, fmt.Sprintf("%s a second", callsWord(rate)))
	}
	return strings.Join(says, " and ")
}

func callsWord(n float64) string {
	if n == 1 {
		return "1 call"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + " calls"
}

type limitsKeysCmd struct {
	Agent string `arg:"" help:"Name of the agent."`
	server
}

// Run lists the busiest keys of a limit.
func (c *limitsKeysCmd) Run(ctx context.Context, std streams) error {
	all, _, err := answered[struct{ Limits []operate.Limit }](c.read(ctx, pathOf("limits"), nil))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all.Limits, func(l operate.Limit) bool { return l.Agent == c.Agent })
	if i < 0 {
		return &client.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("agent %q has no limit", c.Agent)}
	}
	page := map[string][]operate.KeyGranted{"busiest_keys": all.Limits[i].BusiestKeys}
	if page["busiest_keys"] == nil {
		page["busiest_keys"] = []operate.KeyGranted{}
	}
	data, err := json.Marshal(page)
	if err != nil {
		return fmt.Errorf("keys of agent %s: %w", c.Agent, err)
	}
	return c.list(std, data, "busiest_keys", say.Of("limit.no-keys"), limitKeyColumns)
}

// rateOf reads calls a second from a flag: a number, or one for a second, a minute or an hour.
func rateOf(flag, text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, per, _ := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "min": 60, "h": 3600}[per]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || !(n > 0) {
		return 0, misuse("%s: %q, want calls a second such as 100 or 0.5, or 6/min, or 100/h", flag, text)
	}
	return n / seconds, nil
}

type limitsRemoveCmd struct {
	Agent string `arg:"" help:"Name of the agent."`
	reasoned
}

// Run removes a limit.
func (c *limitsRemoveCmd) Run(ctx context.Context, std streams) error {
	if _, err := c.remove(ctx, std, pathOf("limits", c.Agent)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.out, say.Of("limit.ended", "agent", c.Agent))
	return err
}
