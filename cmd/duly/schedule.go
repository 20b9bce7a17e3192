package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planfile"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/schedule"
)

type scheduleCmd struct {
	Apply  scheduleApplyCmd  `cmd:"" help:"Make schedules from a file, or change them; what they have done is kept."`
	List   scheduleListCmd   `cmd:"" help:"List the schedules."`
	Show   scheduleShowCmd   `cmd:"" help:"Show one schedule: what it has done, and its next five runs."`
	Pause  schedulePauseCmd  `cmd:"" help:"Submit nothing until it is resumed; the runs of that time are left out."`
	Resume scheduleResumeCmd `cmd:"" help:"Go on with the next run that comes."`
	RunNow scheduleRunCmd    `cmd:"" help:"Submit a task now, whatever the times are and whether or not the task before has ended."`
	Delete scheduleDeleteCmd `cmd:"" help:"Delete a schedule; its tasks stay."`
}

// scheduleBytesMax bounds a file of schedules.
const scheduleBytesMax = 1 << 20

type scheduleApplyCmd struct {
	File string `arg:"" type:"existingfile" help:"File with schedules, as YAML or JSON; several are parted by lines of ---."`
	reasoned
}

// Run stores each schedule of the file. All of it is checked before any is sent.
func (c *scheduleApplyCmd) Run(ctx context.Context, std streams) error {
	found, err := readSchedules(c.File)
	if err != nil {
		return err
	}
	for _, one := range found {
		view, data, err := answered[operate.ScheduleView](c.ask(ctx, client.Request{Method: http.MethodPut, Path: pathOf("schedules", one.spec.Name), Query: queryOf(map[string]string{"reason": c.Reason}), Body: one.data}))
		if err != nil {
			field := ""
			if bad, ok := errors.AsType[*client.Problem](err); ok {
				field = bad.Field
			}
			return fmt.Errorf("%s: schedule %s: %w", one.at(field), one.spec.Name, err)
		}
		next := "no run comes: it is paused"
		if len(view.Next) > 0 {
			next = "next run " + zoned(view.Next[0], view.Zone)
		}
		if err := c.said(std, data, scheduleFields, "%s is stored; %s", one.spec.Name, next); err != nil {
			return err
		}
	}
	return nil
}

// scheduleDoc is a schedule of a file.
type scheduleDoc struct {
	spec schedule.Spec
	data []byte // as JSON
	file string
	node ast.Node
}

// at names the place of a field; of one that is not there, that of the schedule.
func (d *scheduleDoc) at(field string) string {
	node := d.node
	if field != "" {
		if path, err := yaml.PathString("$." + field); err == nil {
			if found, err := path.FilterNode(d.node); err == nil && found != nil {
				node = found
			}
		}
	}
	return placeOf(d.file, node)
}

// placeOf is file, line and column of a node.
func placeOf(file string, node ast.Node) string {
	for {
		m, ok := node.(*ast.MappingNode)
		if !ok || len(m.Values) == 0 {
			break
		}
		node = m.Values[0].Key // the token of a mapping is its first colon
	}
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return file
	}
	p := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Column)
}

// scheduleKeys are the fields of a schedule.
var scheduleKeys = func() (keys []string) {
	t := reflect.TypeFor[schedule.Spec]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	return keys
}()

// readSchedules reads schedules from a file, and refuses what cannot be one by line and column.
func readSchedules(file string) ([]scheduleDoc, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, misuse("file: %v", err)
	}
	if len(data) > scheduleBytesMax {
		return nil, misuse("file: %s has %d bytes, the limit is %d", file, len(data), scheduleBytesMax)
	}
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil { // with its own words about line and column
		return nil, misuse("file: %s: %v", file, err)
	}
	var all []scheduleDoc
	seen := map[string]bool{}
	for _, doc := range parsed.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		one := scheduleDoc{file: file, node: doc.Body}
		if err := one.read(); err != nil {
			return nil, err
		}
		if seen[one.spec.Name] {
			return nil, misuse("%s: schedule %s is in the file twice", one.at("name"), one.spec.Name)
		}
		seen[one.spec.Name] = true
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, misuse("file: %s has no schedule", file)
	}
	return all, nil
}

// read makes a schedule of its node.
func (d *scheduleDoc) read() error {
	body, ok := d.node.(*ast.MappingNode)
	if !ok {
		return misuse("%s: want the fields of a schedule: %s", d.at(""), strings.Join(scheduleKeys, ", "))
	}
	for _, v := range body.Values {
		known := false
		for _, key := range scheduleKeys {
			known = known || v.Key.GetToken().Value == key
		}
		if !known {
			return misuse("%s: field %s is not known; a schedule has %s", placeOf(d.file, v.Key), v.Key.GetToken().Value, strings.Join(scheduleKeys, ", "))
		}
	}
	value, err := planfile.Plain(d.file, d.node)
	if err != nil {
		return misuse("%v", err)
	}
	if d.data, err = json.Marshal(value); err != nil {
		return misuse("%s: %v", d.at(""), err)
	}
	strict := json.NewDecoder(bytes.NewReader(d.data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&d.spec); err != nil {
		if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return misuse("%s: %s is a %s, want %s", d.at(typed.Field), typed.Field, typed.Value, wordOf(typed.Type))
		}
		if timed, ok := errors.AsType[*time.ParseError](err); ok {
			for _, field := range []string{"from", "until"} {
				if given, ok := value.(map[string]any)[field].(string); ok && strings.Contains(timed.Value, given) {
					return misuse("%s: %s is %q, want a time such as 2026-12-31T23:00:00Z", d.at(field), field, given)
				}
			}
		}
		return misuse("%s: %v", d.at(""), err)
	}
	parsed, err := schedule.Parse(&d.spec)
	if err == nil {
		err = parsed.CheckFires(time.Now())
	}
	if bad, ok := errors.AsType[*schedule.FieldError](err); ok {
		return misuse("%s: %s", d.at(bad.Field), bad.Text)
	}
	return err
}

// wordOf is a type in the words of a file.
func wordOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Map:
		return "texts by name"
	}
	return t.String()
}

type scheduleListCmd struct {
	paged
}

// Run lists the schedules.
func (c *scheduleListCmd) Run(ctx context.Context, std streams) error {
	return c.lists(ctx, std, pathOf("schedules"), c.query(map[string]string{}), "schedules", "no schedule", scheduleColumns)
}

type scheduleShowCmd struct {
	Name string `arg:"" help:"Name of the schedule."`
	server
}

// Run shows one.
func (c *scheduleShowCmd) Run(ctx context.Context, std streams) error {
	data, err := c.read(ctx, pathOf("schedules", c.Name), nil)
	if err != nil {
		return err
	}
	var v operate.ScheduleView
	return c.show(std.out, data, "", scheduleFields, &v, func(w io.Writer) { printSchedule(w, &v) })
}

// zoned is an instant in UTC, and what the clock of a zone shows then, unless that is UTC too.
func zoned(t time.Time, zone string) string {
	text := t.UTC().Format(time.RFC3339)
	if place, err := time.LoadLocation(zone); err == nil && place != time.UTC {
		text += t.In(place).Format(" (Mon 2006-01-02 15:04:05 ") + zone + ")"
	}
	return text
}

// printSchedule prints a schedule as text.
func printSchedule(w io.Writer, v *operate.ScheduleView) {
	row := func(name, format string, a ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, show.Clean(fmt.Sprintf(format, a...)))
	}
	at := func(t time.Time) string { return zoned(t, v.Zone) }
	row("schedule", "%s, tasks of type %s", v.Name, v.Type)
	switch {
	case v.Every != "":
		row("when", "every %s", v.Every)
	case v.Zone != "":
		row("when", "%s, %s", v.Cron, v.Zone)
	default:
		row("when", "%s, UTC", v.Cron)
	}
	if v.Paused {
		row("paused", "by %s at %s", v.By, at(v.Changed))
	}
	for i, run := range v.Next {
		row(map[bool]string{true: "next"}[i == 0], "%s", at(run))
	}
	if v.LastTask != "" {
		outcome := "not ended"
		if v.Outcome != "" {
			outcome = string(v.Outcome)
		}
		if v.Why != "" {
			outcome += ": " + v.Why
		}
		row("last", "%s at %s: %s", v.LastTask, at(v.LastAt), outcome)
	}
	if v.Failure != "" {
		row("failing", "since %s: %s", at(v.Failing), v.Failure)
	}
	row("so far", "%d submitted, %d skipped, %d missed, %d waiting", v.Submitted, v.Skipped, v.Missed, len(v.Waiting))
}

// scheduled is a change of one schedule.
type scheduled struct {
	Name string `arg:"" help:"Name of the schedule."`
	reasoned
}

// do pauses or resumes.
func (c *scheduled) do(ctx context.Context, std streams, what, said string) error {
	data, err := c.change(ctx, std, pathOf("schedules", c.Name, what), show.Object{})
	if err != nil {
		return err
	}
	return c.said(std, data, scheduleFields, "%s: %s", c.Name, said)
}

type schedulePauseCmd struct{ scheduled }

// Run pauses a schedule.
func (c *schedulePauseCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, "pause", "paused")
}

type scheduleResumeCmd struct{ scheduled }

// Run resumes a schedule.
func (c *scheduleResumeCmd) Run(ctx context.Context, std streams) error {
	return c.do(ctx, std, "resume", "resumed")
}

type scheduleRunCmd struct {
	scheduled
	keyed
}

// Run submits a task now.
func (c *scheduleRunCmd) Run(ctx context.Context, std streams) error {
	run, data, err := answered[operate.ScheduleRun](c.send(ctx, http.MethodPost, pathOf("schedules", c.Name, "run-now"), show.Object{"reason": c.Reason}, c.header()))
	if err != nil {
		return c.unsure("run", err)
	}
	if run.Again {
		return c.said(std, data, scheduleRunFields, "%s", say.Of("schedule.ran-already", "task", run.Task))
	}
	return c.said(std, data, scheduleRunFields, "%s was submitted", run.Task)
}

type scheduleDeleteCmd struct{ scheduled }

// Run deletes a schedule.
func (c *scheduleDeleteCmd) Run(ctx context.Context, std streams) error {
	if _, err := c.remove(ctx, std, pathOf("schedules", c.Name)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(std.out, "deleted %s\n", c.Name)
	return err
}
