package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// server is the node that the client commands talk to.
type server struct {
	Server  string        `short:"s" env:"DULY_URL" help:"Address of a node's HTTP API (default: the profile's, or http://127.0.0.1:7310)."`
	Token   string        `env:"DULY_TOKEN" help:"Token of the API (default: the profile's). Other users of a machine can see a command line: the environment or a profile is better."`
	Profile string        `env:"DULY_PROFILE" help:"Profile with address and token (default: the one in use, see duly profile)."`
	Timeout time.Duration `default:"10s" help:"How long to wait for an answer."`
	Output  string        `short:"o" enum:"text,json,yaml,csv" default:"text" help:"text, json, yaml or csv."`
	trust

	made *client.Client // of the first request
}

// defaultServer is where a node serves its API unless told otherwise.
const defaultServer = "http://127.0.0.1:7310"

// client is the connection to the API that flags, environment and profile name, one for all of a command: another profile
// may be in use by the time that a person has answered. A token of a profile goes to the profile's address alone.
func (s *server) client() (*client.Client, error) {
	if s.made != nil {
		return s.made, nil
	}
	if s.Timeout <= 0 {
		return nil, misuse("timeout: %v, want more than 0", s.Timeout)
	}
	c := &client.Client{Base: s.Server, Token: s.Token, Timeout: s.Timeout}
	if c.Base == "" || s.Profile != "" {
		p, err := profileOf(s.Profile)
		if err != nil {
			return nil, err
		}
		if c.Base == "" {
			c.Base = p.URL
		}
		if c.Token == "" && c.Base == p.URL {
			c.Token = p.Token
		}
	}
	c.Base = cmp.Or(c.Base, defaultServer)
	var err error
	if c.By, err = s.transport(); err == nil {
		s.made = c
	}
	return c, err
}

// ask makes one request and returns the body of a good answer.
func (s *server) ask(ctx context.Context, r client.Request) ([]byte, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, r)
}

// send makes a request with a JSON body.
func (s *server) send(ctx context.Context, method, path string, body any, header map[string]string) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", path, err)
	}
	return s.ask(ctx, client.Request{Method: method, Path: path, Body: data, Header: header})
}

// read asks for what is at a path.
func (s *server) read(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return s.ask(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query})
}

// answered reads the answer to a request.
func answered[T any](data []byte, err error) (answer T, as []byte, _ error) {
	if err == nil {
		if err = json.Unmarshal(data, &answer); err != nil {
			err = fmt.Errorf("answer of the API: %w", err)
		}
	}
	return answer, data, err
}

// lists prints the list at a path.
func (s *server) lists(ctx context.Context, std streams, path string, query url.Values, key, none string, columns []string) error {
	data, err := s.read(ctx, path, query)
	if err != nil {
		return err
	}
	return s.list(std, data, key, none, columns)
}

// shows prints the object at a path.
func (s *server) shows(ctx context.Context, std streams, path string, columns []string) error {
	data, err := s.read(ctx, path, nil)
	if err != nil {
		return err
	}
	return s.object(std, data, columns)
}

// reasoned is a change that is written down with its reason.
type reasoned struct {
	Reason string `help:"Why; it is kept in the audit trail."`
	server
}

// insisting is a change that names something.
type insisting struct {
	EvenIfUnknown bool `help:"Accept a name that is not known yet." json:"even_if_unknown,omitempty"`
}

// keyed is a change that is carried out once.
type keyed struct {
	Key string `help:"Key under which the request is carried out once, however often it is sent (default: a new one)."`
}

// header is the key, a new one where none is given.
func (k *keyed) header() map[string]string {
	k.Key = cmp.Or(k.Key, rand.Text())
	return map[string]string{client.HeaderKey: k.Key}
}

// unsure says with an answer that did not come how to ask again.
func (k *keyed) unsure(what string, err error) error {
	_, away := errors.AsType[*client.UnreachableError](err)
	if bad, refused := errors.AsType[*client.Problem](err); away || refused && bad.Status >= http.StatusInternalServerError {
		return fmt.Errorf("whether the %s was asked is not known; with --key %s it is carried out once: %w", what, k.Key, err)
	}
	return err
}

// why is the reason, which is asked for where none is given.
func (r *reasoned) why(std streams) (string, error) { return reasonOf(std, r.Reason, true) }

// change sends a body with the reason.
func (r *reasoned) change(ctx context.Context, std streams, path string, body show.Object) ([]byte, error) {
	var err error
	if body["reason"], err = r.why(std); err != nil {
		return nil, err
	}
	return r.send(ctx, http.MethodPost, path, body, nil)
}

// remove deletes what is at a path.
func (r *reasoned) remove(ctx context.Context, std streams, path string) ([]byte, error) {
	reason, err := r.why(std)
	if err != nil {
		return nil, err
	}
	return r.ask(ctx, client.Request{Method: http.MethodDelete, Path: path, Query: queryOf(map[string]string{"reason": reason})})
}

// paged is a list that comes in pages.
type paged struct {
	Limit int    `default:"50" help:"How many, 1 to 1000."`
	After string `help:"Cursor that the page before ended with."`
	server
}

// query asks for a page of those that the values choose.
func (p *paged) query(values map[string]string) url.Values {
	values["limit"], values["after"] = strconv.Itoa(p.Limit), p.After
	return queryOf(values)
}

// named is one task on the command line.
type named struct {
	Type string `arg:"" type:"task" help:"Task type, or type/id."`
	ID   string `arg:"" help:"Task id."`
}

// path is where the task is.
func (n *named) path() string { return taskPath(n.Type, n.ID) }

// pathOf joins parts to a path of the API.
func pathOf(parts ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

func taskPath(taskType, id string) string { return pathOf("tasks", taskType, id) }

// queryOf is a query of what is not empty.
func queryOf(values map[string]string) url.Values {
	q := url.Values{}
	for name, value := range values {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// show prints an answer as it is, as rows, or as text by into and render.
func (s *server) show(w io.Writer, data []byte, key string, columns []string, into any, render func(io.Writer)) error {
	switch s.Output {
	case show.JSON, show.YAML:
		return show.Raw(w, s.Output, data)
	case show.CSV:
		rows, err := rowsOf(data, key)
		if err != nil {
			return err
		}
		return show.Records(w, columns, rows)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	render(w)
	return nil
}

// rowsOf are the objects of an answer: those of a list, or the answer itself.
func rowsOf(data []byte, key string) ([]show.Object, error) {
	var body show.Object
	if err := show.Decode(data, &body); err != nil {
		return nil, err
	}
	if key == "" {
		return []show.Object{body}, nil
	}
	return show.Objects(body[key]), nil
}

// list prints the list that an answer has under a key; none says what an empty one means.
func (s *server) list(std streams, data []byte, key, none string, columns []string) error {
	switch s.Output {
	case show.JSON, show.YAML:
		return show.Raw(std.out, s.Output, data)
	}
	rows, err := rowsOf(data, key)
	if err != nil {
		return err
	}
	if s.Output == show.CSV {
		err = show.Records(std.out, columns, rows)
	} else if len(rows) == 0 {
		_, err = fmt.Fprintln(std.out, none)
	} else {
		show.On(std.out).Table(columns, rows)
	}
	var page struct {
		Next    string `json:"next"`
		Partial bool   `json:"partial"`
	}
	if json.Unmarshal(data, &page) == nil && page.Next != "" { // a list without pages has none
		to := std.err
		if s.Output == show.Text {
			to = std.out
		}
		if page.Partial {
			fmt.Fprintln(to, "the search was cut off here, and there may be more")
		}
		fmt.Fprintf(to, "more: --after %s\n", show.Clean(page.Next))
	}
	return err
}

// object prints one object by its fields.
func (s *server) object(std streams, data []byte, columns []string) error {
	switch s.Output {
	case show.JSON, show.YAML:
		return show.Raw(std.out, s.Output, data)
	}
	rows, err := rowsOf(data, "")
	if err != nil {
		return err
	}
	if s.Output == show.CSV {
		return show.Records(std.out, columns, rows)
	}
	show.On(std.out).Fields(columns, rows[0])
	return nil
}

// said prints a sentence, or the answer for programs where there is one.
func (s *server) said(std streams, data []byte, columns []string, format string, a ...any) error {
	if s.Output != show.Text && len(data) > 0 {
		return s.object(std, data, columns)
	}
	_, err := fmt.Fprintf(std.out, format+"\n", a...)
	return err
}

// told prints a report, as JSON or for a person, and fails if it is unclean.
func told[R any](std streams, asJSON bool, report R, text func(show.Page, R) error, unclean bool) error {
	var err error
	if asJSON {
		err = writeJSON(std.out, report)
	} else {
		err = text(show.On(std.out), report)
	}
	if err == nil && unclean {
		return errUnclean
	}
	return err
}

func writeJSON(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

type submitCmd struct {
	Type       string `arg:"" optional:"" type:"task" help:"Task type: the name of its plan; or type/id."`
	ID         string `arg:"" optional:"" help:"Task id, yours: the same id again is the same task."`
	Input      string `arg:"" optional:"" help:"Input as JSON; without it, or with -, it is read from standard input."`
	CompleteBy string `help:"Deadline: RFC 3339, or a duration such as 30s."`
	StartAt    string `help:"Nothing of it begins before: RFC 3339, or a delay such as 2h. The plan's time counts from then."`

	PlanVersion string   `help:"Version of the plan, which must be stored; newest unless said."`
	Label       []string `short:"l" help:"Labels, each key=value, up to 8: for lists, pauses and operations."`
	Priority    string   `help:"high, normal or low: the label duly-priority, for its share of busy agents."`
	bulkFlags
	payloads
	server
}

// Run submits one task, or those of a file.
func (c *submitCmd) Run(ctx context.Context, std streams) error {
	if c.File != "" {
		return c.submitFile(ctx, std)
	}
	switch {
	case c.Type == "" || c.ID == "":
		return misuse("want TYPE and ID, or --file FILE")
	case c.Resume || c.Failed != "":
		return misuse("--resume and --failed go with --file")
	}
	input := []byte(c.Input)
	if c.Input == "" || c.Input == "-" {
		var err error
		if input, err = io.ReadAll(std.in); err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
	sent, err := c.encode(duly.Place{Type: c.Type, Task: c.ID}, input, core.InputBytesMax)
	if err != nil {
		return err
	}
	labels := c.Label
	if c.Priority != "" {
		if _, err := core.ParseClass(c.Priority); err != nil {
			return misuse("priority: %v", err)
		}
		labels = append(labels, core.PriorityLabel+"="+c.Priority)
	}
	form := submit.Form{CompleteBy: c.CompleteBy, StartAt: c.StartAt, Version: c.PlanVersion, Labels: strings.Join(labels, ",")}
	header := map[string]string{"Content-Type": "application/json"}
	for name, values := range form.Header() {
		header[name] = values[0]
	}
	data, err := c.ask(ctx, client.Request{Method: http.MethodPut, Path: taskPath(c.Type, c.ID), Body: sent, Header: header})
	if err != nil {
		data, err = c.again(ctx, input, err)
	}
	if err != nil {
		return err
	}
	var a struct {
		ID       string `json:"id"`
		State    string `json:"state"`
		Position string `json:"stream_position"`
		Warning  string `json:"warning"`
	}
	return c.show(std.out, data, "", submittedColumns, &a, func(w io.Writer) {
		if a.Position == "" {
			fmt.Fprintf(w, "%s is a task already: %s\n", a.ID, a.State)
			return
		}
		fmt.Fprintf(w, "%s is stored at %s\n", a.ID, a.Position)
		if a.Warning != "" {
			fmt.Fprintln(w, "warning:", show.Clean(a.Warning))
		}
	})
}

// ended reports whether the task has come to an end, be it one that needs an operator.
func (t *task) ended() bool {
	return t.State == "processed" || t.State == "undone" || t.State == "error"
}

type getCmd struct{ anyTask }

// Run shows one task.
func (c *getCmd) Run(ctx context.Context, std streams) error {
	data, err := c.find(ctx)
	if err == nil {
		data, err = c.open(std, data)
	}
	if err != nil {
		return err
	}
	var t task
	return c.show(std.out, data, "", taskColumns, &t, func(w io.Writer) { t.print(w) })
}

type listCmd struct {
	Type        string `help:"Only this type."`
	State       string `help:"Only this state: pending, processing, processed, undoing, undone or error."`
	Step        string `help:"Only tasks in which this step failed."`
	Fingerprint string `help:"Only tasks that failed in this way: field fingerprint of a failure group."`
	Label       string `short:"l" help:"Only tasks with this label: key=value."`
	Parent      string `help:"Only the children of the task with this id."`
	PlanVersion int64  `help:"Only tasks of this version of their plan."`
	Waits       string `help:"signal: only tasks that wait for an answer to a signal step."`
	CreatedFrom string `help:"Only tasks created at this time or after: a time (RFC 3339), or how long ago, as 2h."`
	CreatedTo   string `help:"Only tasks created before this time: a time, or how long ago."`
	DeadlineTo  string `help:"Only tasks whose deadline is before this time: a time, or a duration from now, as 10m."`
	paged
}

// Run lists tasks.
func (c *listCmd) Run(ctx context.Context, std streams) error {
	from, to, deadline, err := c.times()
	if err != nil {
		return err
	}
	data, err := c.read(ctx, pathOf("tasks"), c.query(map[string]string{
		"type": c.Type, "state": c.State, "step": c.Step, "fingerprint": c.Fingerprint, "label": c.Label, "parent": c.Parent, "waits": c.Waits, "created_from": from,
		"created_to": to, "deadline_to": deadline, "plan_version": strings.TrimPrefix(strconv.FormatInt(c.PlanVersion, 10), "0"),
	}))
	if err != nil {
		return err
	}
	return c.tasks(std, data, "no task")
}

// times are the times of the filter as the API reads them.
func (c *listCmd) times() (from, to, deadline string, err error) {
	read := func(name, text string, sign time.Duration) string {
		at, wrong := momentFrom(name, text, sign)
		if err == nil {
			err = wrong
		}
		if at.IsZero() {
			return ""
		}
		return at.UTC().Format(time.RFC3339Nano)
	}
	return read("created-from", c.CreatedFrom, -1), read("created-to", c.CreatedTo, -1), read("deadline-to", c.DeadlineTo, 1), err
}

type cancelCmd struct {
	named
	Reason string `help:"Why; it is written into the journal."`

	EvenIfUnknown bool `help:"Also if no task has this id yet: a submission under it is refused then."`
	server
}

// Run asks that a task end. What is refused, because nothing would change, is an error.
func (c *cancelCmd) Run(ctx context.Context, std streams) error {
	values := map[string]string{"reason": c.Reason}
	if c.EvenIfUnknown {
		values["even_if_unknown"] = "true"
	}
	data, err := c.ask(ctx, client.Request{Method: http.MethodDelete, Path: c.path(), Query: queryOf(values)})
	if err != nil {
		return err
	}
	var a struct {
		State   string `json:"state"`
		Outcome string `json:"outcome"`
	}
	return c.show(std.out, data, "", cancelledColumns, &a, func(w io.Writer) {
		a.Outcome = strings.TrimPrefix(a.Outcome, operate.Asked)
		if a.State == "" {
			fmt.Fprintf(w, "asked that %s end: %s\n", c.ID, a.Outcome)
			return
		}
		fmt.Fprintf(w, "asked that %s end; it is %s: %s (to see how far it is: duly get %s/%s)\n", c.ID, a.State, a.Outcome, c.Type, c.ID)
	})
}

type healthCmd struct {
	Server  string        `short:"s" env:"DULY_URL" default:"http://127.0.0.1:7310" help:"Address of the node's HTTP server."`
	Timeout time.Duration `default:"3s" help:"How long to wait."`
	trust
}

// Run asks a node whether it is ready.
func (c *healthCmd) Run(ctx context.Context, std streams) error {
	by, err := c.transport()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return misuse("timeout: %v, want more than 0", c.Timeout)
	}
	asked := client.Client{Base: c.Server, Timeout: c.Timeout, By: by}
	if _, err := asked.Do(ctx, client.Request{Method: http.MethodGet, Path: "/readyz"}); err != nil {
		return fmt.Errorf("not ready: %v", err) //nolint:errorlint // a container's check knows 0 and 1 alone
	}
	_, err = fmt.Fprintln(std.out, "ready")
	return err
}
