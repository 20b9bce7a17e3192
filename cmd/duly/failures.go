package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/schollz/progressbar/v3"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// The paths of operations.
const (
	pathOperations = "/v1/operations"
	pathPreview    = "/v1/operations/preview"
)

// previewBody is a request for a preview.
type previewBody struct {
	Selection operate.Selection `json:"selection"`
	Action    operate.Action    `json:"action"`
	Request   operate.Request   `json:"request"`
}

// startBody starts a preview.
type startBody struct {
	Token   string `json:"token"`
	Rate    int    `json:"rate,omitempty"`
	Brake   int    `json:"brake,omitempty"`
	Reason  string `json:"reason"`
	Confirm int64  `json:"confirm,omitempty"`
}

type failuresCmd struct {
	List    failuresListCmd    `cmd:"" help:"List the failure groups: tasks of one type that failed in one step in the same way."`
	Show    failuresShowCmd    `cmd:"" help:"Show one failure group with its notes."`
	Preview failuresPreviewCmd `cmd:"" help:"Freeze the tasks of a group and rehearse an action on them; nothing is changed."`
	Repair  failuresRepairCmd  `cmd:"" help:"Carry out an action on the tasks of a group, in waves that stop by themselves when they fail alike. Exit status 1 if it stops or tasks fail again."`
}

type failuresListCmd struct {
	Type  string `help:"Only this type."`
	State string `help:"Only this state: error or undone."`
	paged
}

// Run lists failure groups.
func (c *failuresListCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, pathOf("failures"), c.query(map[string]string{"type": c.Type, "state": c.State}))
	if err != nil {
		return err
	}
	none := say.Of("cli.no-failure")
	var page struct {
		At time.Time `json:"at"`
	}
	if json.Unmarshal(data, &page) == nil && !page.At.IsZero() {
		none += ", looked at " + page.At.UTC().Format(time.RFC3339)
	}
	return c.list(std, data, "groups", none, groupColumns)
}

type failuresShowCmd struct {
	Group string `arg:"" help:"Id of the group."`
	server
}

// Run shows a failure group.
func (c *failuresShowCmd) Run(ctx context.Context, std streams) error {
	return c.shows(ctx, std, pathOf("failures", c.Group), groupFields)
}

// bulk is the action that an operation asks of each task.
type bulk struct {
	Group  string `arg:"" help:"Id of the failure group."`
	Action string `default:"resubmit" enum:"resubmit,edit,undo,accept,resolve" help:"What is asked of each task: resubmit, edit, undo, accept or resolve."`
	Patch  string `help:"Edit each task's own input before it starts again: a JSON Merge Patch (RFC 7386) as JSON, @file or -. A task that it does not apply to is skipped."`
	As     string `help:"Of resolve: processed or undone."`
	Result string `help:"Of accept: the result of the step, as JSON, @file or -."`
	Until  string `help:"Of resubmit: the new deadline, a time or duration from now (default: the plan's time, or its own if later)."`
	Found  string `enum:",absent,done" default:"" help:"What you have seen at the services of keys that are too old: of resubmit and edit absent, of undo done."`
	reasoned
}

// preview freezes the group's tasks.
func (b *bulk) preview(ctx context.Context, std streams, reason string) (p operate.Preview, data []byte, err error) {
	action := operate.Action(b.Action)
	if b.Patch != "" && action == operate.ActionResubmit {
		action = operate.ActionEdit // what a patch can only mean
	}
	body := previewBody{Selection: operate.Selection{Group: b.Group}, Action: action, Request: operate.Request{Action: action, Reason: reason, As: core.State(b.As), Found: core.ProbeOutcome(b.Found)}}
	if body.Request.Until, err = moment("until", b.Until); err != nil {
		return p, nil, err
	}
	if b.Result != "" {
		if body.Request.Result, err = document(std, "result", b.Result); err != nil {
			return p, nil, err
		}
	}
	if b.Patch != "" {
		if body.Request.Patch, err = document(std, "patch", b.Patch); err != nil {
			return p, nil, err
		}
	} else if action == operate.ActionEdit {
		return p, nil, misuse("patch: none given, and edit needs one")
	}
	return answered[operate.Preview](b.send(ctx, http.MethodPost, pathPreview, body, nil))
}

// printPreview says what an operation would come to.
func printPreview(page show.Page, p *operate.Preview, data []byte) error {
	rows, err := rowsOf(data, "")
	if err != nil {
		return err
	}
	page.Fields(previewFields, rows[0])
	if p.Rehearsal != nil {
		fmt.Fprintln(page.W, "\n"+say.Of("cli.rehearsed", "n", p.Tasks))
		rehearsal, _ := rows[0]["rehearsal"].(show.Object)
		page.Fields(rehearsalFields, rehearsal)
		if reasons := show.Objects(rehearsal["reasons"]); len(reasons) > 0 {
			fmt.Fprintln(page.W)
			page.Table(reasonColumns, reasons)
		}
	}
	if sample := show.Objects(rows[0]["sample"]); len(sample) > 0 {
		fmt.Fprintln(page.W, "\n"+say.Of("cli.first"))
		page.Table(memberColumns[:4], sample)
	}
	printChanges(page.W, p.Changes)
	return nil
}

// printChanges shows what a patch makes of inputs.
func printChanges(w io.Writer, changes []operate.InputChange) {
	for i := range changes {
		c := &changes[i]
		fmt.Fprintf(w, "\n%s %s: ", show.Clean(c.Type), show.Clean(c.ID))
		if c.Why != "" {
			fmt.Fprintln(w, show.Clean(c.Why))
			continue
		}
		differs := udiff.Unified("input", "new input", indented(c.Before), indented(c.After))
		if differs == "" {
			fmt.Fprintln(w, say.Of("op.unchanged"))
			continue
		}
		fmt.Fprintln(w)
		for line := range strings.SplitSeq(strings.TrimSuffix(differs, "\n"), "\n") {
			fmt.Fprintln(w, show.Clean(line))
		}
	}
}

type failuresPreviewCmd struct{ bulk }

// Run freezes and rehearses.
func (c *failuresPreviewCmd) Run(ctx context.Context, std streams) error {
	p, data, err := c.preview(ctx, std, c.Reason)
	if err != nil {
		return err
	}
	if c.Output != show.Text {
		return c.object(std, data, previewFields)
	}
	if err := printPreview(show.On(std.out), &p, data); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "\n%s\n", say.Of("cli.preview", "group", c.Group, "token", p.Token))
	return err
}

type failuresRepairCmd struct {
	Preview string `help:"Token of a preview: what was frozen then is what is repaired (default: a new one)."`
	Yes     int64  `help:"The number of tasks, without a terminal to type it at. Another number than the preview's is refused."`
	Rate    int    `help:"Tasks a second at most; 0: no limit but the waves."`
	Brake   int    `default:"0" help:"A wave stops the operation when more than this percentage of it fails alike; 0: the node's default."`
	Detach  bool   `help:"Print the operation and do not wait for it."`
	bulk
}

// Run previews, asks for the number of tasks, starts, and follows the operation.
func (c *failuresRepairCmd) Run(ctx context.Context, std streams) error {
	reason, err := c.why(std)
	if err != nil {
		return err
	}
	start := startBody{Token: c.Preview, Rate: c.Rate, Brake: c.Brake, Reason: reason, Confirm: c.Yes}
	if c.Preview == "" {
		p, data, err := c.preview(ctx, std, reason)
		if err != nil {
			return err
		}
		if err := printPreview(show.On(std.err), &p, data); err != nil {
			return err
		}
		start.Token = p.Token
		if start.Confirm, err = confirmed(std, c.Yes, p.Tasks); err != nil {
			return err
		}
	} else if c.Yes == 0 {
		return misuse("yes: not given, and the preview was made before: --yes with its number of tasks")
	}
	return c.begin(ctx, std, start, c.Detach)
}

// begin starts a preview, and follows the operation unless it is detached.
func (s *server) begin(ctx context.Context, std streams, start startBody, detach bool) error {
	op, data, err := answered[operate.Operation](s.send(ctx, http.MethodPost, pathOperations, start, map[string]string{client.HeaderKey: start.Token}))
	if err != nil {
		return err
	}
	if detach {
		return s.said(std, data, opFields, "%s", say.Of("cli.op-runs", "id", op.ID, "n", op.Tasks))
	}
	return s.follow(ctx, std, op.ID)
}

// confirmed is the number of tasks, said by --yes or typed at a terminal.
func confirmed(std streams, yes, tasks int64) (int64, error) {
	switch {
	case tasks == 0:
		return 0, stateError{errors.New("the group has no task any more; nothing was started")}
	case yes == tasks:
		return tasks, nil
	case yes != 0:
		return 0, stateError{fmt.Errorf("the preview has %s, and --yes says %d; nothing was started", say.Count(tasks, "task"), yes)}
	case !std.interactive():
		return 0, misuse("yes: not given, and there is no terminal to ask at: --yes %d", tasks)
	}
	answer, err := std.prompt(say.Of("cli.confirm", "n", tasks))
	if err != nil {
		return 0, err
	}
	if typed, err := strconv.ParseInt(strings.ReplaceAll(answer, ",", ""), 10, 64); err != nil || typed != tasks {
		return 0, stateError{fmt.Errorf("the preview has %s, and %q was typed; nothing was started", say.Count(tasks, "task"), answer)}
	}
	return tasks, nil
}

// followEvery is between two looks at an operation, followLost how long it may be out of reach.
const (
	followEvery = 500 * time.Millisecond
	followLost  = 2 * time.Minute
)

// follow shows how far an operation is until it ends or stops.
func (s *server) follow(ctx context.Context, std streams, id string) error {
	bar := opBar{w: std.err}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var since time.Time // when it was last reached; zero: now
	for {
		data, err := s.read(ctx, pathOf("operations", id), nil)
		switch {
		case err == nil:
			since = time.Time{}
		case exitOf(err) != exitUnreachable:
			return err
		case since.IsZero():
			since = time.Now()
			fmt.Fprintln(std.err, say.Of("cli.op-lost"), err)
		case time.Since(since) > followLost:
			return err
		}
		if err == nil {
			var op operate.Operation
			if err := json.Unmarshal(data, &op); err != nil {
				return fmt.Errorf("answer of the API: %w", err)
			}
			bar.show(&op)
			if op.State != operate.OperationRunning && op.State != operate.OperationPreview {
				bar.end()
				if err := s.object(std, data, opFields); err != nil {
					return err
				}
				stay := op.Action == operate.ActionMigrate && op.Tally.Skipped > 0
				if stay {
					fmt.Fprintln(std.err, say.Of("cli.not-moved", "n", op.Tally.Skipped, "id", id))
				}
				if op.State != operate.OperationDone || op.Tally.FailedAgain > 0 || stay {
					return errUnclean
				}
				return nil
			}
		}
		select {
		case <-ctx.Done():
			bar.end()
			fmt.Fprintln(std.err, say.Of("cli.op-goes-on", "id", id))
			return errUnclean
		case <-tick.C:
		}
	}
}

// opBar is how far an operation is: a bar on a terminal, a line for each change of state and wave elsewhere.
type opBar struct {
	w    io.Writer
	bar  *progressbar.ProgressBar
	last string
}

func tallyWords(t operate.Tally) string {
	return say.Of("cli.tally", "done", t.Done, "failed", t.FailedAgain, "skipped", t.Skipped, "asked", t.Asked, "waiting", t.Waiting)
}

func (b *opBar) show(op *operate.Operation) {
	ended := op.Tally.Done + op.Tally.FailedAgain + op.Tally.Skipped
	if terminal(b.w) {
		if b.bar == nil {
			b.bar = progressbar.NewOptions64(op.Tasks, progressbar.OptionSetWriter(show.Under(b.w)), progressbar.OptionClearOnFinish(),
				progressbar.OptionSetWidth(20), progressbar.OptionSetPredictTime(false))
		}
		b.bar.Describe(say.Of("cli.wave", "wave", op.Wave, "failed", op.Tally.FailedAgain, "skipped", op.Tally.Skipped))
		_ = b.bar.Set64(ended) // what a terminal does not take is not said elsewhere
		return
	}
	if now := fmt.Sprintf("%s wave %d", op.State, op.Wave); now != b.last {
		b.last = now
		fmt.Fprintf(b.w, "%s: %s\n", now, tallyWords(op.Tally))
	}
}

func (b *opBar) end() {
	if b.bar != nil {
		_ = b.bar.Clear() // as above
	}
}

type opCmd struct {
	List   opListCmd   `cmd:"" help:"List operations, newest first."`
	Show   opShowCmd   `cmd:"" help:"Show one operation, or its members."`
	Watch  opWatchCmd  `cmd:"" help:"Follow an operation until it ends or stops."`
	Pause  opPauseCmd  `cmd:"" help:"Hold an operation before its next tasks."`
	Resume opResumeCmd `cmd:"" help:"Go on with an operation that is paused or has stopped itself."`
	Stop   opStopCmd   `cmd:"" help:"End an operation for good. What was asked of tasks already goes on."`
	Rate   opRateCmd   `cmd:"" help:"Change how many tasks a second an operation asks."`
}

type opListCmd struct {
	State string `help:"Only this state: preview, running, paused, braked, stopped or done (default: all but previews)."`
	paged
}

// Run lists operations.
func (c *opListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOperations, c.query(map[string]string{"state": c.State}), "operations", "no operation", opColumns)
}

type opShowCmd struct {
	ID      string `arg:"" help:"Id of the operation."`
	Members bool   `help:"List its tasks instead, with what became of each."`
	Outcome string `help:"Only members of this outcome: waiting, asked, done, failed_again or skipped."`
	Limit   int    `default:"50" help:"How many members, 1 to 1000."`
	After   string `help:"Only members after this ordinal."`
	server
}

// Run shows an operation or its members.
func (c *opShowCmd) Run(ctx context.Context, std streams) error {
	if !c.Members && c.Outcome == "" {
		return c.shows(ctx, std, pathOf("operations", c.ID), opFields)
	}
	return c.lists(ctx, std, pathOf("operations", c.ID, "members"), queryOf(map[string]string{"outcome": c.Outcome, "after": c.After, "limit": strconv.Itoa(c.Limit)}), "members", "no member", memberColumns)
}

type opWatchCmd struct {
	ID string `arg:"" help:"Id of the operation."`
	server
}

// Run follows an operation.
func (c *opWatchCmd) Run(ctx context.Context, std streams) error { return c.follow(ctx, std, c.ID) }

// changing changes an operation.
type changing struct {
	ID string `arg:"" help:"Id of the operation."`
	reasoned
}

func (c *changing) do(ctx context.Context, std streams, change operate.Change) error {
	var err error
	if change.Reason, err = c.why(std); err != nil {
		return err
	}
	op, data, err := answered[operate.Operation](c.send(ctx, http.MethodPatch, pathOf("operations", c.ID), change, nil))
	if err != nil {
		return err
	}
	return c.said(std, data, opFields, "operation %s is %s, rate %d: %s", op.ID, op.State, op.Rate, tallyWords(op.Tally))
}

type opPauseCmd struct{ changing }

// Run pauses an operation.
func (c *opPauseCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.Change{State: operate.OperationPaused})
}

type opResumeCmd struct{ changing }

// Run resumes an operation.
func (c *opResumeCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.Change{State: operate.OperationRunning})
}

type opStopCmd struct{ changing }

// Run stops an operation.
func (c *opStopCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, operate.Change{State: operate.OperationStopped})
}

type opRateCmd struct {
	changing
	Rate int `arg:"" help:"Tasks a second at most; 0: no limit but the waves."`
}

// Run changes the rate of an operation.
func (c *opRateCmd) Run(ctx context.Context, std streams) error {
	if c.Rate < 0 {
		return misuse("rate: %d, want 0 or more", c.Rate)
	}
	return c.do(ctx, std, operate.Change{Rate: &c.Rate})
}
