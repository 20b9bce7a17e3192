package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
)

const (
	whyTasks = 100_000
	whyCalls = 100
)

// Why is how long the question takes why a task is where it is.
type Why struct {
	Scenario string         `json:"scenario"`
	Store    string         `json:"store"`
	Date     string         `json:"date"`
	Machine  string         `json:"machine"`
	Command  string         `json:"command"`
	Tasks    int            `json:"tasks"` // in the store, parked
	Calls    int            `json:"calls"`
	Reads    []OperatorRead `json:"reads"`
	Sentence string         `json:"sentence"` // one answer
}

// why asks a node with many unfinished tasks about one after the other: over HTTP, and by the command, whose process is
// started for each.
func why(ctx context.Context, s *settings, command string, out io.Writer) error {
	where, err := whereOf(s)
	if err != nil {
		return err
	}
	res := &Why{Scenario: s.scenario, Store: s.store, Date: time.Now().UTC().Format(time.RFC3339), Machine: where, Command: command, Tasks: orElse(s.preload, whyTasks), Calls: whyCalls}
	r, err := newRig(ctx, s.system(rigOptions{HTTP: true, Prepare: func(ctx context.Context, r *rig) error {
		return r.park(ctx, res.Tasks, core.InstantOf(time.Now().Add(parkedFor)))
	}}))
	if err != nil {
		return err
	}
	if err = errors.Join(r.whys(ctx, s, res), r.close()); err != nil {
		return err
	}
	return publishTable(s, res, out)
}

func (r *rig) whys(ctx context.Context, s *settings, res *Why) error {
	// Tasks from everywhere in the store, each once.
	requests := drone.NewGenerator(yardSeed)
	id := func(i int) string {
		request := requests.Request(i * (res.Tasks / (whyCalls + operatorWarm)))
		return request.DeliveryID
	}
	client := &http.Client{Timeout: askMax}
	defer client.CloseIdleConnections()
	get := func(i int) error {
		ask, err := http.NewRequestWithContext(ctx, http.MethodGet, r.httpURL+"/v1/tasks/"+drone.Type+"/"+id(i), http.NoBody)
		if err != nil {
			return err
		}
		ask.Header.Set("Authorization", "Bearer "+r.token)
		body, err := bodyOf(client, ask)
		if err == nil && !strings.Contains(string(body), `"why":"`) {
			err = fmt.Errorf("the answer says no why: %.200s", body)
		}
		return err
	}
	if err := res.time("GET of a task, with why", get); err != nil {
		return err
	}
	fresh := func(i int) error {
		client.CloseIdleConnections()
		return get(i)
	}
	if err := res.time("the same, on a connection of its own", fresh); err != nil {
		return err
	}
	if s.duly == "" {
		return nil
	}
	duly, err := filepath.Abs(s.duly)
	if err != nil {
		return err
	}
	run := func(args ...string) error {
		c := exec.CommandContext(ctx, duly, args...)
		c.Env = append(os.Environ(), "DULY_URL="+r.httpURL, "DULY_TOKEN="+r.token, "XDG_CONFIG_HOME="+r.dir)
		text, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("duly %s: %w: %.300s", strings.Join(args, " "), err, text)
		}
		if res.Sentence = strings.TrimSpace(string(text)); res.Sentence == "" {
			return fmt.Errorf("duly %s: it says nothing", strings.Join(args, " "))
		}
		return nil
	}
	return errors.Join(
		res.time("duly version, the start of a process alone", func(int) error { return run("version") }),
		res.time("duly why ID", func(i int) error { return run("why", id(i)) }),
		res.time("duly why TYPE ID", func(i int) error { return run("why", drone.Type, id(i)) }),
	)
}

// time takes the time of each call.
func (res *Why) time(name string, call func(i int) error) error {
	i := 0
	read, err := operatorTime(question{name, func() (int, error) { i++; return 1, call(i - 1) }}, operatorWarm, whyCalls)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	res.Reads = append(res.Reads, read)
	return nil
}

func (res *Why) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %d unfinished tasks, %d calls each, ms\nquestion\tp50\tp95\tmax\n", storeWord(res.Store), res.Tasks, res.Calls)
	for _, r := range res.Reads {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\n", r.Question, r.P50, r.P95, r.Max)
	}
	fmt.Fprintf(w, "it says: %s\n", res.Sentence)
	return w.Flush()
}
