package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/plancheck"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/versions"
	"duly.dev/duly/internal/wire"
)

type planCmd struct {
	Apply     planApplyCmd     `cmd:"" help:"Store a version of a plan, which never changes afterwards; the same again is fine. With --nats-url it goes over NATS, where users of the kind operator may."`
	List      planListCmd      `cmd:"" help:"List the stored versions of all plans."`
	Show      planShowCmd      `cmd:"" help:"Show one version of a plan with its steps."`
	Lint      planLintCmd      `cmd:"" help:"Check a plan in a file, without a server: names, types, limits, expressions. Exit status 2 if it cannot work."`
	Deprecate planDeprecateCmd `cmd:"" help:"Keep new submissions from a version of a plan, or with --undo let them take it again. Tasks in flight keep it."`
	Check     planCheckCmd     `cmd:"" help:"Play every task in flight, and the newest ended ones, against a version of their plan, and list those that come out differently. Exit status 1 if there are any."`
	Migrate   planMigrateCmd   `cmd:"" help:"Let tasks go on by another version of their plan, where every step that has begun is the same in both."`
	Diff      planDiffCmd      `cmd:"" help:"Show what differs between a plan in a file and a stored version, or between two stored versions. Exit status 1 if they differ."`
}

// readPlan reads a plan from a file, YAML or JSON, and refuses what cannot be one: each error with its line and column.
// payloadMax is the largest message of the server that it is for.
func readPlan(file string, payloadMax int) (json.RawMessage, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, misuse("file: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, planfile.BytesMax+1))
	if err != nil {
		return nil, misuse("file: %v", err)
	}
	p, err := planfile.Read(file, data, payloadMax)
	if err != nil {
		return nil, misuse("%v", err)
	}
	return wire.EncodePlan(&p)
}

type planApplyCmd struct {
	File string `arg:"" type:"existingfile" help:"File with the plan, as YAML or JSON."`
	server
	natsLinks
	overNATS bool
}

// AfterApply is kong's: a flag of NATS on the command line, and no setting of the environment, says how to get there.
func (c *planApplyCmd) AfterApply(k *kong.Context) error {
	c.overNATS = slices.ContainsFunc(k.Path, func(p *kong.Path) bool { return p.Flag != nil && strings.HasPrefix(p.Flag.Name, "nats-") })
	return nil
}

// Run stores a plan.
func (c *planApplyCmd) Run(ctx context.Context, std streams) error {
	plan, err := readPlan(c.File, 0) // the server says what it takes
	if err != nil {
		return err
	}
	hand := c.hand
	if !c.overNATS {
		hand = func(ctx context.Context, plan []byte) ([]byte, error) {
			return c.ask(ctx, client.Request{Method: http.MethodPut, Path: pathOf("plans"), Body: plan})
		}
	}
	stored, data, err := answered[struct {
		planHead
		Newest int64 `json:"newest"`
		Stored int   `json:"stored"` // versions; 0: the door does not say

		Callers []versions.Caller `json:"callers"`
	}](hand(ctx, plan))
	if err != nil {
		return err
	}
	takes := ""
	switch {
	case stored.Stored == 0:
	case stored.Newest == 0:
		takes = "; every version is deprecated, so submissions are refused"
	case stored.Stored == 1:
		takes = ", the only version of this name"
	default:
		takes = fmt.Sprintf("; new submissions take version %d", stored.Newest)
	}
	warnCallers(std, stored.Callers)
	return c.said(std, data, appliedColumns, "plan %s version %d is stored%s", stored.Name, stored.Version, takes)
}

// hand hands a plan in over NATS, and returns the answer as the API gives it.
func (c *planApplyCmd) hand(ctx context.Context, plan []byte) ([]byte, error) {
	conn, err := c.dialWithin(ctx, c.Timeout, "duly plan apply")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	msg, err := conn.Request(ctx, conn.Names().SubjectPlansApply(), plan)
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return nil, err
	case err != nil:
		return nil, &client.UnreachableError{Address: "NATS", Err: fmt.Errorf("no node answered: %w", err)}
	}
	answer, err := wire.DecodePlanAnswer(msg.Data)
	var refused *wire.APIError
	switch {
	case errors.As(err, &refused):
		return nil, &client.Problem{Status: refused.Code, Detail: refused.Description}
	case err != nil:
		return nil, err
	}
	return json.Marshal(struct {
		planHead
		Callers json.RawMessage `json:"callers,omitempty"`
	}{planHead{Name: answer.Name, Version: answer.Version}, answer.Callers})
}

type planLintCmd struct {
	File       string `arg:"" type:"existingfile" help:"File with the plan, as YAML or JSON."`
	MaxPayload int    `default:"1048576" help:"Largest message that the server takes, in bytes: its max_payload."`
}

// Run checks a plan.
func (c *planLintCmd) Run(std streams) error {
	data, err := readPlan(c.File, c.MaxPayload)
	if err != nil {
		return err
	}
	plan, err := decodeStored(data)
	if err != nil {
		return fmt.Errorf("file: %s: %w", c.File, err)
	}
	_, err = fmt.Fprintf(std.out, "%s: plan %s version %d can work (steps: %d)\norder: %s\n", c.File, plan.Name, plan.Version, len(plan.Steps), plan.Order())
	for _, doubt := range plancheck.Doubts(plan) {
		fmt.Fprintln(std.err, "warning:", doubt)
	}
	return err
}

type planListCmd struct{ server }

// Run lists the plans.
func (c *planListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("plans"), nil, "plans", "no plan is stored", planListColumns)
}

// planHead is what names a plan.
type planHead struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
}

// plan is a stored version; 0: the newest.
func (s *server) plan(ctx context.Context, name string, version int64) (json.RawMessage, error) {
	all, _, err := answered[struct{ Plans []json.RawMessage }](s.read(ctx, pathOf("plans"), nil))
	if err != nil {
		return nil, err
	}
	var found json.RawMessage
	newest := int64(0)
	var have []int64
	for _, p := range all.Plans {
		var head planHead
		if err := json.Unmarshal(p, &head); err != nil {
			return nil, fmt.Errorf("answer of the API: %w", err)
		}
		if head.Name != name {
			continue
		}
		have = append(have, head.Version)
		if version == head.Version || version == 0 && head.Version > newest {
			found, newest = p, head.Version
		}
	}
	if found == nil {
		slices.Sort(have)
		if len(have) == 0 {
			return nil, &client.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no plan %q is stored", name)}
		}
		return nil, &client.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no plan %q version %d; versions stored: %s", name, version, strings.Trim(fmt.Sprint(have), "[]"))}
	}
	return found, nil
}

type planShowCmd struct {
	Name    string `arg:"" help:"Name of the plan."`
	Version int64  `help:"Version (default: the newest)."`
	YAML    bool   `name:"yaml" help:"Write it as a file for plan apply, without what has its default."`
	server
}

// Run shows a plan.
func (c *planShowCmd) Run(ctx context.Context, std streams) error {
	plan, err := c.plan(ctx, c.Name, c.Version)
	if err != nil {
		return err
	}
	if c.YAML {
		p, err := decodeStored(plan)
		if err != nil {
			return fmt.Errorf("plan %s: %w", c.Name, err)
		}
		text, err := planfile.Write(p)
		if err != nil {
			return err
		}
		_, err = std.out.Write(text)
		return err
	}
	if c.Output != show.Text {
		return c.list(std, plan, "steps", "", planColumns)
	}
	rows, err := rowsOf(plan, "")
	if err != nil {
		return err
	}
	p, err := decodeStored(plan)
	if err != nil {
		return fmt.Errorf("plan %s: %w", c.Name, err)
	}
	page := show.On(std.out)
	page.Fields(planListColumns, rows[0])
	fmt.Fprintf(std.out, "\norder: %s\n\n", show.Clean(p.Order()))
	page.Table(planColumns, show.Objects(rows[0]["steps"]))
	return nil
}
