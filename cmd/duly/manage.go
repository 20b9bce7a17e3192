package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

type agentsCmd struct {
	List  agentsListCmd  `cmd:"" default:"withargs" help:"List the agents: how many are there, their breakers, and what waits for them."`
	Open  agentsOpenCmd  `cmd:"" help:"Open the breaker of an agent: nothing begins there."`
	Close agentsCloseCmd `cmd:"" help:"Close the breaker of an agent: its calls go on, whatever they come to."`
	Auto  agentsAutoCmd  `cmd:"" help:"Let the breaker of an agent decide by itself again."`
}

type agentsListCmd struct{ server }

// Run lists the agents.
func (c *agentsListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("agents"), nil, "agents", "no agent", agentColumns)
}

// forced is a change of the breaker of one agent.
type forced struct {
	Agent string `arg:"" help:"Name of the agent."`
	reasoned
}

// breakerBody is a request for it.
type breakerBody struct {
	State  operate.BreakerWish `json:"state"`
	Until  time.Time           `json:"until,omitzero"`
	Reason string              `json:"reason"`
	insisting
}

// do asks for a change of the breaker.
func (c *forced) do(ctx context.Context, std streams, state operate.BreakerWish, ends string, even insisting) error {
	until, err := moment("for", ends)
	if err != nil {
		return err
	}
	reason, err := c.why(std)
	if err != nil {
		return err
	}
	b, data, err := answered[operate.Breaker](c.send(ctx, http.MethodPut, pathOf("agents", c.Agent, "breaker"), breakerBody{state, until, reason, even}, nil))
	if err != nil {
		return err
	}
	switch {
	case state == operate.BreakerAuto:
		return c.said(std, data, breakerFields, "%s", say.Of("breaker.auto", "agent", c.Agent, "state", b.State))
	case b.Until.IsZero():
		return c.said(std, data, breakerFields, "%s", say.Of("breaker.forced", "agent", c.Agent, "state", b.State, "by", b.By))
	}
	return c.said(std, data, breakerFields, "%s", say.Of("breaker.forced-until", "agent", c.Agent, "state", b.State, "by", b.By, "at", b.Until.UTC().Format(time.RFC3339)))
}

type agentsOpenCmd struct {
	forced
	For string `help:"Until when: a duration from now or a time (default: until it is set to auto)."`
	insisting
}

// Run opens a breaker.
func (c *agentsOpenCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.BreakerOpened, c.For, c.insisting)
}

type agentsCloseCmd struct {
	forced
	For string `help:"Until when: a duration from now or a time (default: until it is set to auto)."`
	insisting
}

// Run closes a breaker.
func (c *agentsCloseCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.BreakerClosed, c.For, c.insisting)
}

type agentsAutoCmd struct{ forced }

// Run lets a breaker go.
func (c *agentsAutoCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.BreakerAuto, "", insisting{})
}

type partitionsCmd struct {
	List     partitionsListCmd `cmd:"" help:"List the partitions with their owners and how far they are behind."`
	Pin      partitionsPinCmd  `cmd:"" help:"Keep a partition at one node, while that lives."`
	Unpin    partitionsOneCmd  `cmd:"" help:"Let a partition go where all others do: by hash."`
	StepDown stepDownCmd       `cmd:"" help:"Make the owner of a partition hand it over."`
}

type partitionsListCmd struct{ server }

// Run lists the partitions.
func (c *partitionsListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("partitions"), nil, "partitions", "no partition", partitionColumns)
}

// partitioned is a change of one partition.
type partitioned struct {
	Partition int `arg:"" help:"Number of the partition."`
	reasoned
}

// do asks for a change of the partition.
func (c *partitioned) do(ctx context.Context, std streams, what string, body show.Object, said string) error {
	data, err := c.change(ctx, std, pathOf("partitions", strconv.Itoa(c.Partition), what), body)
	if err != nil {
		return err
	}
	return c.said(std, data, partitionColumns, "partition %d: %s", c.Partition, said)
}

type partitionsPinCmd struct {
	partitioned
	Node string `arg:"" help:"Name of the node."`
	insisting
}

// Run pins a partition.
func (c *partitionsPinCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, "pin", show.Object{"node": c.Node, operate.EvenIfUnknown: c.EvenIfUnknown}, "pinned to "+c.Node)
}

type partitionsOneCmd struct{ partitioned }

// Run unpins a partition.
func (c *partitionsOneCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, "unpin", show.Object{}, say.Of("partition.unpinned"))
}

type stepDownCmd struct{ partitioned }

// Run asks for a handover.
func (c *stepDownCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, "step-down", show.Object{}, say.Of("partition.asked-owner"))
}

type pauseCmd struct {
	Set  pauseSetCmd  `cmd:"" help:"Hold back new commands of a type, a step, an agent or a label."`
	List pauseListCmd `cmd:"" help:"List the pauses."`
	Lift pauseLiftCmd `cmd:"" help:"End a pause."`
}

// pauseBody is a request for a pause.
type pauseBody struct {
	Type   string    `json:"type,omitempty"`
	Step   string    `json:"step,omitempty"`
	Agent  string    `json:"agent,omitempty"`
	Label  string    `json:"label,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason"`
	insisting
}

type pauseSetCmd struct {
	Type  string `help:"Tasks of this type."`
	Step  string `help:"This step of the type."`
	Agent string `help:"Commands to this agent."`
	Label string `short:"l" help:"Tasks with this label: key=value."`
	Until string `help:"When it lifts itself: a time or a duration from now (default: never)."`
	insisting
	keyed
	reasoned
}

// Run sets a pause.
func (c *pauseSetCmd) Run(ctx context.Context, std streams) error {
	if c.Type == "" && c.Agent == "" && c.Label == "" {
		return misuse("nothing to pause: want --type (with --step), --agent or --label")
	}
	if c.Step != "" && c.Type == "" {
		return misuse("step: goes with --type")
	}
	until, err := moment("until", c.Until)
	if err != nil {
		return err
	}
	reason, err := c.why(std)
	if err != nil {
		return err
	}
	p, data, err := answered[operate.Pause](c.send(ctx, http.MethodPost, pathOf("pauses"), pauseBody{c.Type, c.Step, c.Agent, c.Label, until, reason, c.insisting}, c.header()))
	if err != nil {
		return c.unsure("pause", err)
	}
	return c.said(std, data, pauseColumns, "%s", say.Of("pause.done", "id", p.ID))
}

type pauseListCmd struct{ server }

// Run lists the pauses.
func (c *pauseListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("pauses"), nil, "pauses", "nothing is paused", pauseListColumns)
}

type pauseLiftCmd struct {
	ID string `arg:"" help:"Id of the pause."`
	reasoned
}

// Run lifts a pause.
func (c *pauseLiftCmd) Run(ctx context.Context, std streams) error {
	data, err := c.remove(ctx, std, pathOf("pauses", c.ID))
	if err != nil {
		return err
	}
	if len(data) == 0 {
		_, err = fmt.Fprintf(std.out, "lifted %s\n", c.ID)
		return err
	}
	return c.said(std, data, pauseColumns, "lifted %s", c.ID)
}

type auditCmd struct {
	Actor  string `help:"Only what this actor did."`
	Action string `help:"Only this action: undo, resubmit, operation.start, token.create …"`
	Target string `help:"Only what was done to targets that begin so: task/<type>/<id>, operation/<id> …"`
	From   string `help:"Only at this time (RFC 3339) or after."`
	To     string `help:"Only before this time."`
	paged
}

// Run lists entries of the audit trail.
func (c *auditCmd) Run(ctx context.Context, std streams) error {
	columns := auditColumns
	if c.Output == show.CSV {
		columns = auditRecord
	}
	query := c.query(map[string]string{"actor": c.Actor, "action": c.Action, "target": c.Target, "from": c.From, "to": c.To})
	return c.lists(ctx, std, pathOf("audit"), query, "entries", "no entry", columns)
}

type noteCmd struct {
	Group string `arg:"" help:"Id of the failure group."`
	Text  string `arg:"" optional:"" help:"The note; without it the notes there are listed, and - reads it from standard input."`
	server
}

// Run writes a note, or lists notes.
func (c *noteCmd) Run(ctx context.Context, std streams) error {
	path := pathOf("failures", strings.TrimPrefix(c.Group, "group/"), "notes")
	if c.Text == "" {
		return c.lists(ctx, std, path, nil, "notes", "no note about "+c.Group, noteColumns)
	}
	text := c.Text
	if text == "-" {
		data, err := io.ReadAll(io.LimitReader(std.in, core.WordsBytesMax+1))
		if err != nil {
			return fmt.Errorf("read the note: %w", err)
		}
		text = string(data)
	}
	if err := core.CheckWords("text", text); err != nil {
		return misuse("%v", err)
	}
	data, err := c.send(ctx, http.MethodPost, path, show.Object{"text": text}, nil)
	if err != nil {
		return err
	}
	return c.said(std, data, noteColumns, "noted about %s", c.Group)
}
