package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// command is one run of a program.
type command struct {
	dir   string
	env   []string // beside this process's own
	stdin io.Reader
}

// run gives what the program printed; its error holds the end of what it said.
func (c command) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = c.dir, c.stdin
	cmd.Env = append(os.Environ(), c.env...)
	// What a killed program started may keep its output open.
	cmd.WaitDelay = 5 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args[:min(len(args), 4)], " "), err, tail(said.String()))
	}
	return out.String(), nil
}

// tailBytes is how much of a program's words an error repeats.
const tailBytes = 2000

func tail(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > tailBytes {
		text = "… " + text[len(text)-tailBytes:]
	}
	return text
}

// pollEvery is how often until looks.
const pollEvery = 250 * time.Millisecond

// until looks until there is nothing left to say, for at most limit. Its error is
// the last that was said.
func until(ctx context.Context, limit time.Duration, look func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still after %v: %w", limit, err)
		case <-tick.C:
		}
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
