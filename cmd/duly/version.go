package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/versions"
	"duly.dev/duly/internal/wire"
)

// deprecateColumns are what a change of a version's mark says.
var deprecateColumns = []string{"name", "version", "deprecated", "newest"}

type planDeprecateCmd struct {
	Name    string `arg:"" help:"Name of the plan."`
	Version int64  `arg:"" help:"The version."`
	Undo    bool   `help:"Let new submissions take it again."`
	Reason  string `help:"Why; it is kept in the audit trail."`
	server
}

// Run marks a version, or takes the mark away.
func (c *planDeprecateCmd) Run(ctx context.Context, std streams) error {
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	data, err := c.send(ctx, http.MethodPost, pathOf("plans", c.Name, strconv.FormatInt(c.Version, 10), "deprecate"), show.Object{"undo": c.Undo, "reason": reason}, nil)
	if err != nil {
		return err
	}
	var a struct {
		Newest int64 `json:"newest"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	said := fmt.Sprintf("plan %s version %d is deprecated", c.Name, c.Version)
	if c.Undo {
		said = fmt.Sprintf("plan %s version %d is deprecated no more", c.Name, c.Version)
	}
	if a.Newest == 0 {
		return c.said(std, data, deprecateColumns, "%s; every version is, so a submission has to name one", said)
	}
	return c.said(std, data, deprecateColumns, "%s; new submissions take version %d", said, a.Newest)
}

// planRef is a plan as an argument names it: a file, or NAME@VERSION of a stored one; without the version, the newest.
type planRef struct {
	file    string
	name    string
	version int64
}

// refOf reads such an argument. What is a file here is one.
func refOf(arg string) (planRef, error) {
	if _, err := os.Stat(arg); err == nil {
		return planRef{file: arg}, nil
	}
	name, text, said := strings.Cut(arg, "@")
	r := planRef{name: name}
	if said {
		var err error
		if r.version, err = core.ParsePlanVersion(text); err != nil {
			return r, misuse("plan: %s: %v", arg, err)
		}
	}
	if err := core.CheckName("plan", name); err != nil {
		return r, misuse("plan: %s is no file, and no NAME@VERSION: %v", core.QuoteShort(arg), err)
	}
	return r, nil
}

// planOf reads the plan that an argument names, with its defaults.
func (s *server) planOf(ctx context.Context, r planRef) (*core.Plan, error) {
	var data json.RawMessage
	var err error
	if r.file != "" {
		data, err = readPlan(r.file)
	} else {
		data, err = s.plan(ctx, r.name, r.version)
	}
	if err != nil {
		return nil, err
	}
	p, err := decodeStored(data)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", r.name+r.file, err)
	}
	return p, nil
}

// decodeStored reads a plan as the API shows it: its form, and what is known of the version.
func decodeStored(data json.RawMessage) (*core.Plan, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for _, field := range []string{"deprecated_at", "$schema"} {
		delete(fields, field)
	}
	plain, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	p, err := wire.DecodePlan(plain)
	if err != nil {
		return nil, err
	}
	p = p.WithDefaults()
	return &p, nil
}

type planDiffCmd struct {
	A       string `arg:"" help:"A file with a plan, or NAME@VERSION."`
	B       string `arg:"" optional:"" help:"The plan that A is compared with, the newer one (default: the newest stored version; of a file A, it is the older one)."`
	Unified bool   `help:"Print both as lines that differ."`
	server
}

// Run compares two plans as they are understood: what a file leaves out has its default.
func (c *planDiffCmd) Run(ctx context.Context, std streams) error {
	from, to, err := c.both(ctx)
	if err != nil {
		return err
	}
	d, err := versions.Compare(from, to)
	if err != nil {
		return err
	}
	switch {
	case c.Output != show.Text:
		data, err := json.Marshal(&d)
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		if err := c.list(std, data, "changes", "", []string{"what", "step", "field", "was", "is", "words", "means"}); err != nil {
			return err
		}
	case c.Unified:
		if err := unified(std.out, from, to); err != nil {
			return err
		}
	case d.Same:
		fmt.Fprintln(std.out, "the same")
	default:
		fmt.Fprintf(std.out, "plan %s: version %d, compared with version %d\n", d.Name, d.To, d.From)
		for _, change := range d.Changes {
			fmt.Fprintf(std.out, "  %s\n      → %s\n", show.Clean(change.Words), change.Means)
		}
		fmt.Fprintf(std.out, "Tasks in flight keep their version until they are moved (→: what it means then).\n")
	}
	if !d.Same {
		return errUnclean
	}
	return nil
}

// both are the plans that are compared, the older one first.
func (c *planDiffCmd) both(ctx context.Context) (from, to *core.Plan, err error) {
	a, err := refOf(c.A)
	if err != nil {
		return nil, nil, err
	}
	if from, err = c.planOf(ctx, a); err != nil {
		return nil, nil, err
	}
	b := planRef{name: from.Name}
	if c.B != "" {
		if b, err = refOf(c.B); err != nil {
			return nil, nil, err
		}
	}
	if to, err = c.planOf(ctx, b); err != nil {
		return nil, nil, err
	}
	if c.B == "" && a.file != "" {
		from, to = to, from
	}
	if from.Name != to.Name {
		return nil, nil, misuse("plan: %s and %s are two plans, want two versions of one", from.Name, to.Name)
	}
	return from, to, nil
}

// unified prints two plans as lines that differ.
func unified(w io.Writer, from, to *core.Plan) error {
	texts := [2]string{}
	for i, p := range []*core.Plan{from, to} {
		form, err := wire.EncodePlan(p)
		if err != nil {
			return fmt.Errorf("plan %s: %w", p.Name, err)
		}
		texts[i] = indented(form)
	}
	_, err := io.WriteString(w, udiff.Unified(fmt.Sprintf("version %d", from.Version), fmt.Sprintf("version %d", to.Version), texts[0], texts[1]))
	return err
}
