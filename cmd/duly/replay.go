package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/replay"
	"duly.dev/duly/internal/say"
)

// replayCmd plays a task's journal.
type replayCmd struct {
	Task   []string      `arg:"" help:"A file of duly export, or a task at the node: type and id, or type/id."`
	At     int64         `help:"Only the journal row of this number."`
	WhatIf int64         `name:"what-if" help:"What would have been decided if the answer in the journal row of this number had come earlier by --by."`
	By     time.Duration `default:"200ms" help:"How much earlier, with --what-if; negative: later."`
	server
}

// frameJSON is a frame as -o json prints it.
type frameJSON struct {
	Seq      int64     `json:"seq,omitempty"`
	At       string    `json:"at"`
	Kind     core.Kind `json:"kind,omitempty"`
	Actor    string    `json:"actor,omitempty"`
	Happened string    `json:"happened"`
	Decided  string    `json:"decided"`
	Why      string    `json:"why,omitempty"`
	Sentence string    `json:"sentence"`
}

func frameOf(f *replay.Frame) frameJSON {
	return frameJSON{Seq: f.Seq, At: f.At.Time().Format(core.TimeLayout), Kind: f.Kind, Actor: f.Actor, Happened: f.Happened, Decided: f.Decided, Why: f.Why, Sentence: f.Sentence}
}

// Run prints what happened at each row, what was decided, and why.
func (c *replayCmd) Run(ctx context.Context, std streams) error {
	names, err := namesOf(c.Task, 1)
	if err != nil {
		return err
	}
	plan, saved, err := c.taskFile(ctx, names[0])
	if err != nil {
		return err
	}
	for flag, row := range map[string]int64{"at": c.At, "what-if": c.WhatIf} {
		if last := int64(len(saved.Journal)); row < 0 || row > last {
			return misuse("%s: row %d, want one of 1 to %d", flag, row, last)
		}
	}
	if c.WhatIf != 0 {
		f, err := replay.WhatIf(plan, saved, c.WhatIf, c.By)
		if err != nil {
			return fmt.Errorf("what if: %w", err)
		}
		return c.frames(std.out, []replay.Frame{f})
	}
	from, to := int64(1), int64(len(saved.Journal))
	if c.At != 0 {
		from, to = c.At, c.At
	}
	var frames []replay.Frame
	for f, err := range replay.All(plan, saved, from, to) {
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		f.Task = nil // not shown: all of a long journal's together are large
		frames = append(frames, f)
	}
	return c.frames(std.out, frames)
}

func (c *replayCmd) frames(w io.Writer, frames []replay.Frame) error {
	if c.Output == show.JSON || c.Output == show.YAML {
		all := make([]frameJSON, len(frames))
		for i := range frames {
			all[i] = frameOf(&frames[i])
		}
		return writeAs(w, c.Output, all)
	}
	for i := range frames {
		writeFrame(w, &frames[i])
	}
	return nil
}

// writeFrame prints one frame: what cannot be printed is its writer's matter.
func writeFrame(w io.Writer, f *replay.Frame) {
	fmt.Fprintf(w, "%4d  %s  %s", f.Seq, f.At.Time().Format("15:04:05.000"), f.Happened)
	if f.Actor != "" {
		fmt.Fprintf(w, "  [%s]", f.Actor)
	}
	fmt.Fprintf(w, "\n      → %s\n", f.Decided)
	if f.Why != "" {
		fmt.Fprintf(w, "      because %s\n", f.Why)
	}
}

// writeAs prints a value as JSON or YAML.
func writeAs(w io.Writer, form string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return show.Raw(w, form, data)
}

// diffCmd says where two tasks of a plan part.
type diffCmd struct {
	Tasks []string `arg:"" help:"Two: the task that went well and the one that did not, each a file of duly export, type and id, or type/id."`
	server
}

// Run prints the first journal row at which they part.
func (c *diffCmd) Run(ctx context.Context, std streams) error {
	names, err := namesOf(c.Tasks, 2)
	if err != nil {
		return err
	}
	plan, a, err := c.taskFile(ctx, names[0])
	if err != nil {
		return err
	}
	_, b, err := c.taskFile(ctx, names[1])
	if err != nil {
		return err
	}
	parting, err := replay.Diff(plan, a, b)
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	if c.Output == show.JSON || c.Output == show.YAML {
		out := struct {
			Same int64      `json:"same"`
			A    *frameJSON `json:"a,omitempty"`
			B    *frameJSON `json:"b,omitempty"`
		}{Same: parting.Same}
		for _, side := range []struct {
			from *replay.Frame
			to   **frameJSON
		}{{parting.A, &out.A}, {parting.B, &out.B}} {
			if side.from != nil {
				f := frameOf(side.from)
				*side.to = &f
			}
		}
		return writeAs(std.out, c.Output, out)
	}
	if parting.A == nil && parting.B == nil {
		fmt.Fprintln(std.out, a.Row.ID+", "+b.Row.ID+": "+say.Of("compare.same", "n", parting.Same))
		return nil
	}
	fmt.Fprintln(std.out, a.Row.ID+", "+b.Row.ID+": "+say.Of("compare.parts", "n", parting.Same, "next", parting.Same+1))
	for _, side := range []struct {
		id    string
		frame *replay.Frame
	}{{a.Row.ID, parting.A}, {b.Row.ID, parting.B}} {
		fmt.Fprintf(std.out, "%s\n", side.id)
		if side.frame == nil {
			fmt.Fprintln(std.out, "      has no further row")
			continue
		}
		writeFrame(std.out, side.frame)
	}
	return nil
}

// exportCmd writes a task into a file.
type exportCmd struct {
	named
	server
}

// Run prints the file.
func (c *exportCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, c.path()+"/export", nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s\n", data)
	return err
}

// namesOf are the names of so many tasks, each of which is one word or two.
func namesOf(words []string, tasks int) ([]string, error) {
	switch len(words) {
	case tasks:
		return words, nil
	case 2 * tasks:
		names := make([]string, tasks)
		for i := range names {
			names[i] = words[2*i] + "/" + words[2*i+1]
		}
		return names, nil
	}
	return nil, misuse("task: %d words, want %d, or type and id of each", len(words), tasks)
}

// taskFile reads a task from a file or from the node.
func (s *server) taskFile(ctx context.Context, name string) (*core.Plan, *core.Saved, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		taskType, id, ok := strings.Cut(name, "/")
		if !ok || slices.Contains([]string{taskType, id}, "") {
			return nil, nil, fmt.Errorf("task %q: neither a file nor type/id", name)
		}
		data, err = s.read(ctx, taskPath(taskType, id)+"/export", nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("task %s: %w", name, err)
	}
	if !json.Valid(data) {
		return nil, nil, fmt.Errorf("task %s: %w: not JSON", name, replay.ErrFile)
	}
	plan, saved, err := replay.Decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("task %s: %w", name, err)
	}
	return plan, saved, nil
}
