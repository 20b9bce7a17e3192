package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/node"
)

type doctorCmd struct {
	Monitor []string `name:"nats-monitor" env:"NATS_MONITOR_URL" help:"Monitoring addresses of the NATS servers, as http://127.0.0.1:8222: servers tell nowhere else whether they sync always and how large their store is."`
	Ignore  []string `help:"Checks whose mistakes are known and wanted: they are shown, and do not count."`
	Only    []string `help:"Show only these checks."`
	JSON    bool     `name:"json" help:"Print JSON."`

	config.Config `embed:""`
}

// findingColumns are those of the table.
var findingColumns = []string{"check", "state", "what"}

// Run looks for mistakes with the node's own settings.
func (c *doctorCmd) Run(ctx context.Context, std streams) error {
	if c.OnlyAgents() {
		return misuse("roles: doctor looks at what a node stands on, and agents alone are none")
	}
	for _, check := range slices.Concat(c.Only, c.Ignore) {
		if !slices.Contains(node.Checks, check) {
			return misuse("%s is no check: there are %s", core.QuoteShort(check), strings.Join(node.Checks, ", "))
		}
	}
	findings := node.Examine(ctx, c.WithoutAgents(), node.Examination{Monitors: c.Monitor})
	if len(c.Only) > 0 {
		findings = slices.DeleteFunc(findings, func(f node.Finding) bool { return !slices.Contains(c.Only, f.Check) })
	}
	for _, check := range c.Only { // what was not looked at is not right
		if !slices.ContainsFunc(findings, func(f node.Finding) bool { return f.Check == check }) {
			return fmt.Errorf("only: %s was not looked at: what it needs is wrong, which doctor says without --only", core.QuoteShort(check))
		}
	}
	wrong := 0
	for i := range findings {
		if findings[i].State == node.FindingWrong && !slices.Contains(c.Ignore, findings[i].Check) {
			wrong++
		}
	}
	return told(std, c.JSON, map[string]any{"findings": findings, "wrong": wrong}, func(page show.Page, _ map[string]any) error {
		return c.print(page, findings, wrong)
	}, wrong > 0)
}

func (c *doctorCmd) print(page show.Page, findings []node.Finding, wrong int) error {
	data, err := json.Marshal(findings)
	if err != nil {
		return fmt.Errorf("findings: %w", err)
	}
	var rows []show.Object
	if err := show.Decode(data, &rows); err != nil {
		return err
	}
	page.Table(findingColumns, rows)
	unknown := 0
	for i := range findings {
		f := &findings[i]
		if f.State == node.FindingUnknown {
			unknown++
		}
		if f.State != node.FindingWrong {
			continue
		}
		ignored := ""
		if slices.Contains(c.Ignore, f.Check) {
			ignored = "  (ignored)"
		}
		fmt.Fprintf(page.W, "\n%s  %s%s\n", f.Check, page.Coloured("state", f.State), ignored)
		for _, part := range [...]struct{ head, text string }{{"what  ", f.What}, {"why   ", f.Why}, {"mend  ", f.Mend}} {
			paragraph(page, part.head, part.text)
		}
	}
	_, err = fmt.Fprintf(page.W, "\n%d wrong, %d not known, of %d checks\n", wrong, unknown, len(findings))
	return err
}

// paragraph prints a text whose lines are indented as far as its head.
func paragraph(page show.Page, head, text string) {
	text = show.Clean(text)
	if page.Width > 2*len(head) {
		text = ansi.Wrap(text, page.Width-len(head)-2, "")
	}
	indent := strings.Repeat(" ", len(head)+2)
	first := true
	for line := range strings.SplitSeq(text, "\n") {
		if first {
			fmt.Fprintf(page.W, "  %s%s\n", head, line)
		} else {
			fmt.Fprintf(page.W, "%s%s\n", indent, line)
		}
		first = false
	}
}
