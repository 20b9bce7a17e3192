package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// answerBytesMax bounds what a node may answer a command.
const answerBytesMax = 64 << 20

// server is the node that the client commands talk to.
type server struct {
	Server  string        `short:"s" env:"DULY_URL" default:"http://127.0.0.1:7310" help:"Address of a node's HTTP API."`
	Timeout time.Duration `default:"10s" help:"How long to wait for an answer."`
	Output  string        `short:"o" enum:"text,json" default:"text" help:"text or json."`
}

// problem is an error answer of the API.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Status int    `json:"status"`
}

// call makes one request and returns the body of a good answer.
func (s *server) call(ctx context.Context, method, path string, body []byte, header map[string]string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.Server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", s.Server, err)
	}
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // its text has the address once more
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s (is a node running there? `duly dev` starts one): %w", s.Server, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w", s.Server, err)
	}
	if resp.StatusCode < 300 {
		return data, nil
	}
	var p problem
	if json.Unmarshal(data, &p) == nil && p.Detail != "" {
		return nil, fmt.Errorf("%s (%d)", p.Detail, resp.StatusCode)
	}
	return nil, fmt.Errorf("%s answered %s", s.Server, resp.Status)
}

func taskPath(taskType, id string) string {
	return "/v1/tasks/" + url.PathEscape(taskType) + "/" + url.PathEscape(id)
}

// show prints an answer as it is, or as text by into and print.
func (s *server) show(w io.Writer, data []byte, into any, render func(io.Writer)) error {
	if s.Output == "json" {
		_, err := fmt.Fprintf(w, "%s\n", bytes.TrimSpace(data))
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("answer of %s: %w", s.Server, err)
	}
	render(w)
	return nil
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
	Type       string `arg:"" help:"Task type: the name of its plan."`
	ID         string `arg:"" help:"Task id, yours: the same id again is the same task."`
	Input      string `arg:"" optional:"" help:"Input as JSON; without it, or with -, it is read from standard input."`
	CompleteBy string `help:"Deadline: RFC 3339, or a duration such as 30s."`

	PlanVersion string `help:"Version of the plan, which must be stored; newest unless said."`
	server
}

// Run submits one task.
func (c *submitCmd) Run(ctx context.Context, std streams) error {
	input := []byte(c.Input)
	if c.Input == "" || c.Input == "-" {
		var err error
		if input, err = io.ReadAll(std.in); err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
	data, err := c.call(ctx, http.MethodPut, taskPath(c.Type, c.ID), input, map[string]string{
		"Content-Type": "application/json", "Duly-Complete-By": c.CompleteBy, "Duly-Plan-Version": c.PlanVersion,
	})
	if err != nil {
		return err
	}
	var a struct {
		ID       string `json:"id"`
		State    string `json:"state"`
		Position string `json:"stream_position"`
	}
	return c.show(std.out, data, &a, func(w io.Writer) {
		if a.Position == "" {
			fmt.Fprintf(w, "%s is a task already: %s\n", a.ID, a.State)
			return
		}
		fmt.Fprintf(w, "%s is stored at %s\n", a.ID, a.Position)
	})
}

// task is what the commands show of one.
type task struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	State     string          `json:"state"`
	Reason    string          `json:"reason"`
	Failed    string          `json:"failed_step"`
	Failures  int             `json:"failures"`
	CreatedAt string          `json:"created_at"`
	EndedAt   string          `json:"ended_at"`
	Input     json.RawMessage `json:"input"`
	Steps     []struct {
		Name    string          `json:"name"`
		Agent   string          `json:"agent"`
		Status  string          `json:"status"`
		Attempt int             `json:"attempt"`
		Error   string          `json:"error"`
		Result  json.RawMessage `json:"result"`
		By      string          `json:"by"`
	} `json:"steps"`
}

type getCmd struct {
	Type string `arg:"" help:"Task type."`
	ID   string `arg:"" help:"Task id."`
	server
}

// Run shows one task.
func (c *getCmd) Run(ctx context.Context, std streams) error {
	data, err := c.call(ctx, http.MethodGet, taskPath(c.Type, c.ID), nil, nil)
	if err != nil {
		return err
	}
	var t task
	return c.show(std.out, data, &t, func(w io.Writer) { t.print(w) })
}

func (t *task) print(w io.Writer) {
	fmt.Fprintf(w, "%s  %s  %s", t.Type, t.ID, t.State)
	switch {
	case t.Failed != "":
		fmt.Fprintf(w, "  (step %s failed: %s)", t.Failed, t.Reason)
	case t.Reason != "":
		fmt.Fprintf(w, "  (%s)", t.Reason)
	}
	fmt.Fprintf(w, "\ncreated %s  ended %s  failures %d\n", t.CreatedAt, cmp.Or(t.EndedAt, "-"), t.Failures)
	tab := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "STEP\tAGENT\tSTATUS\tATTEMPT\tBY\tRESULT OR ERROR")
	for _, s := range t.Steps {
		last := string(s.Result)
		if s.Error != "" {
			last = s.Error
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\t%s\n", s.Name, s.Agent, s.Status, s.Attempt, cmp.Or(strings.TrimSuffix(s.By, "@"+s.Agent), "-"), last)
	}
	_ = tab.Flush() // to the same writer as the lines above, whose errors are not looked at either
}

type listCmd struct {
	Type  string `help:"Only this type."`
	State string `help:"Only this state: pending, processing, processed, undoing, undone or error."`
	Limit int    `default:"50" help:"How many, 1 to 1000."`
	After string `help:"Cursor that the page before ended with."`
	server
}

// Run lists tasks.
func (c *listCmd) Run(ctx context.Context, std streams) error {
	q := url.Values{}
	for name, value := range map[string]string{"type": c.Type, "state": c.State, "after": c.After, "limit": fmt.Sprint(c.Limit)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	data, err := c.call(ctx, http.MethodGet, "/v1/tasks?"+q.Encode(), nil, nil)
	if err != nil {
		return err
	}
	var page struct {
		Tasks []task `json:"tasks"`
		Next  string `json:"next"`
	}
	return c.show(std.out, data, &page, func(w io.Writer) {
		tab := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
		fmt.Fprintln(tab, "TYPE\tID\tSTATE\tCREATED\tENDED")
		for i := range page.Tasks {
			t := &page.Tasks[i]
			fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\n", t.Type, t.ID, t.State, t.CreatedAt, cmp.Or(t.EndedAt, "-"))
		}
		_ = tab.Flush() // as above
		if page.Next != "" {
			fmt.Fprintf(w, "more: --after %s\n", page.Next)
		}
	})
}

type cancelCmd struct {
	Type   string `arg:"" help:"Task type."`
	ID     string `arg:"" help:"Task id."`
	Reason string `help:"Why; it is written into the journal."`

	EvenIfUnknown bool `help:"Also if no task has this id yet: a submission under it is refused then."`
	server
}

// Run asks that a task end. What is refused, because nothing would change, is an error.
func (c *cancelCmd) Run(ctx context.Context, std streams) error {
	q := url.Values{}
	if c.Reason != "" {
		q.Set("reason", c.Reason)
	}
	if c.EvenIfUnknown {
		q.Set("even_if_unknown", "true")
	}
	path := taskPath(c.Type, c.ID)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	data, err := c.call(ctx, http.MethodDelete, path, nil, nil)
	if err != nil {
		return err
	}
	var a struct {
		State   string `json:"state"`
		Outcome string `json:"outcome"`
	}
	return c.show(std.out, data, &a, func(w io.Writer) {
		if a.State == "" {
			fmt.Fprintf(w, "asked that %s end: %s\n", c.ID, a.Outcome)
			return
		}
		fmt.Fprintf(w, "asked that %s end; it is %s: %s (duly get shows how far it is)\n", c.ID, a.State, a.Outcome)
	})
}

type healthCmd struct {
	Server  string        `short:"s" env:"DULY_URL" default:"http://127.0.0.1:7310" help:"Address of the node's HTTP server."`
	Timeout time.Duration `default:"3s" help:"How long to wait."`
}

// Run asks a node whether it is ready.
func (c *healthCmd) Run(ctx context.Context, std streams) error {
	s := server{Server: c.Server, Timeout: c.Timeout}
	if _, err := s.call(ctx, http.MethodGet, "/readyz", nil, nil); err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	_, err := fmt.Fprintln(std.out, "ready")
	return err
}
