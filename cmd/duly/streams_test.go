package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestInputEnds: a command that waits for its input, or for a person's answer, ends when it is told to.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"submit", "order", "o-1", "-s", "http://127.0.0.1:1"},
		{"pause", "lift", "p-1", "-s", "http://127.0.0.1:1"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		in, typed := io.Pipe()
		code := make(chan int, 1)
		go func() { code <- run(ctx, args, streams{answering{in}, io.Discard, io.Discard}) }()
		cancel()
		select {
		case is := <-code:
			if is == exitDone {
				t.Errorf("duly %s: done", strings.Join(args, " "))
			}
		case <-time.After(10 * time.Second):
			t.Errorf("duly %s waits on", strings.Join(args, " "))
		}
		_ = typed.Close() // which never fails
	}
}

// full is a disk that is full.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestOutputLost: a list that could not be written is not done.
func TestOutputLost(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"plans":[{"name":"lamp","version":1}]}`)
	}))
	defer node.Close()
	for _, form := range []string{"text", "csv", "json"} {
		var errs bytes.Buffer
		code := run(t.Context(), []string{"plan", "list", "-s", node.URL, "-o", form}, streams{strings.NewReader(""), full{}, &errs})
		if code != exitFailed || !strings.Contains(errs.String(), errFull.Error()) {
			t.Errorf("%s: exit %d: %s", form, code, &errs)
		}
	}
}
