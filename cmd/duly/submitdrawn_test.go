package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/cmd/duly/internal/client"
)

// bulkTurn is how a node serves one request.
type bulkTurn struct {
	how   int
	after int // lines of which it takes no more
	lost  int // answers before it that do not arrive
}

// How a node serves a request.
const (
	turnAll   = iota
	turnAway  // it cannot be reached
	turnBusy  // 503 before a line is read
	turnBreak // the connection breaks
	turnLimit // a request may have no more lines
	turnCloses
	turnStop // the command is stopped
	turnKill // it is killed
	turnKinds
)

// drawnNode is a node as a bulk submission sees it. It is the transport to itself.
type drawnNode struct {
	file, failed string
	turns        []bulkTurn
	fails        map[string]int // how often an id is not taken yet
	stop         context.CancelFunc
	work         sync.WaitGroup

	mu    sync.Mutex
	tasks map[string]string // input by id
	left  map[string][]byte // files as a killed command leaves them; nil: it was not killed
}

// RoundTrip implements http.RoundTripper.
func (n *drawnNode) RoundTrip(r *http.Request) (*http.Response, error) {
	turn := bulkTurn{}
	if len(n.turns) > 0 {
		turn, n.turns = n.turns[0], n.turns[1:]
	}
	answer := func(status int, body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: body, Request: r}
	}
	switch turn.how {
	case turnAway:
		return nil, errors.New("connection refused")
	case turnBusy:
		return answer(http.StatusServiceUnavailable, io.NopCloser(strings.NewReader(`{"detail":"it starts"}`))), nil
	}
	from, to := io.Pipe()
	n.work.Go(func() { n.serve(r, turn, to) })
	return answer(http.StatusOK, from), nil
}

// serve takes lines and answers them.
func (n *drawnNode) serve(r *http.Request, turn bulkTurn, to *io.PipeWriter) {
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, bulkLineBytes)
	var held []string // answers that may be lost
	for number := 0; lines.Scan(); number++ {
		if turn.how != turnAll && number >= turn.after {
			n.end(turn, to, held)
			return
		}
		if held = append(held, n.take(lines.Text())); turn.how == turnAll || len(held) > turn.lost {
			if _, err := io.WriteString(to, held[0]); err != nil {
				return // the command is gone
			}
			held = held[1:]
		}
	}
	_, _ = io.WriteString(to, strings.Join(held, "")+"{\"summary\":{}}\n") // as above
	_ = to.Close()                                                         // never an error
}

// end ends a request before its last line.
func (n *drawnNode) end(turn bulkTurn, to *io.PipeWriter, held []string) {
	summary := `{"summary":{"error":{"status":%d,"detail":"no more"}}}` + "\n"
	switch turn.how {
	case turnLimit:
		_, _ = fmt.Fprintf(to, strings.Join(held, "")+summary, http.StatusRequestEntityTooLarge)
	case turnCloses:
		_, _ = fmt.Fprintf(to, strings.Join(held, "")+summary, http.StatusServiceUnavailable)
	case turnKill:
		n.mu.Lock()
		n.left = map[string][]byte{}
		for _, name := range []string{n.file + ".progress", n.failed} {
			n.left[name], _ = os.ReadFile(name) // nil: it is not there
		}
		n.mu.Unlock()
		n.stop()
	case turnStop:
		n.stop()
	}
	_ = to.CloseWithError(io.ErrUnexpectedEOF) // never an error
}

// take is what becomes of a line.
func (n *drawnNode) take(line string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var said struct {
		ID    string
		Input json.RawMessage
	}
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		return `{"outcome":"refused","error":{"status":400,"detail":"no JSON"}}` + "\n"
	}
	is, there := n.tasks[said.ID]
	switch {
	case there && is == string(said.Input):
		return fmt.Sprintf(`{"id":%q,"outcome":"existing"}`+"\n", said.ID)
	case there:
		return fmt.Sprintf(`{"id":%q,"outcome":"refused","error":{"status":409,"detail":"another input"}}`+"\n", said.ID)
	case n.fails[said.ID] > 0:
		n.fails[said.ID]--
		return fmt.Sprintf(`{"id":%q,"outcome":"failed","error":{"status":503,"detail":"not now"}}`+"\n", said.ID)
	}
	n.tasks[said.ID] = string(said.Input)
	return fmt.Sprintf(`{"id":%q,"outcome":"stored"}`+"\n", said.ID)
}

// drawnFile is a file of lines, and what has to become of them.
type drawnFile struct {
	text    string
	lines   int
	refused []string
	tasks   map[string]string
	fails   map[string]int
}

func drawFile(t *rapid.T) *drawnFile {
	f := &drawnFile{tasks: map[string]string{}, fails: map[string]int{}}
	var ids []string
	for i := range rapid.IntRange(1, 25).Draw(t, "lines") {
		id, input := fmt.Sprintf("d-%d", i), fmt.Sprint(i)
		line := laterLine(id, input)
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind <= 1 && len(ids) > 0: // again
			id = rapid.SampledFrom(ids).Draw(t, "again")
			line = laterLine(id, f.tasks[id])
		case kind == 2 && len(ids) > 0: // with another input
			id = rapid.SampledFrom(ids).Draw(t, "other")
			delete(f.fails, id) // else the other input may come before it
			line = laterLine(id, input)
			f.refused = append(f.refused, line)
		case kind == 3:
			line = line[:len(line)/2]
			f.refused = append(f.refused, line)
		default:
			ids = append(ids, id)
			f.tasks[id] = input
			if kind == 4 {
				f.fails[id] = rapid.IntRange(1, 3).Draw(t, "fails")
			}
		}
		f.text += line + "\n"
		f.lines++
	}
	if rapid.Bool().Draw(t, "cut") {
		f.text = strings.TrimSuffix(f.text, "\n")
	}
	return f
}

// TestSubmitFileThroughAnything: whatever becomes of requests and of the command, a file that is sent until that succeeds is
// stored whole, each line once; what is told of it adds up, and the lines that were refused are kept, each once.
//
// covers: Q4
func TestSubmitFileThroughAnything(t *testing.T) {
	folder := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		f := drawFile(rt)
		turns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) bulkTurn {
			return bulkTurn{rapid.IntRange(0, turnKinds-1).Draw(t, "how"), rapid.IntRange(1, 8).Draw(t, "after"), rapid.IntRange(0, 4).Draw(t, "lost")}
		}), 0, 8).Draw(rt, "turns")
		resume := rapid.Bool().Draw(rt, "resume")
		for _, name := range []string{"tasks", "tasks.progress", "failed"} {
			if err := os.Remove(filepath.Join(folder, name)); err != nil && !os.IsNotExist(err) {
				rt.Fatal(err)
			}
		}
		n := &drawnNode{file: filepath.Join(folder, "tasks"), failed: filepath.Join(folder, "failed"), turns: turns, fails: f.fails, tasks: map[string]string{}}
		if err := os.WriteFile(n.file, []byte(f.text), 0o600); err != nil {
			rt.Fatal(err)
		}
		var wrong string
		synctest.Test(t, func(t *testing.T) { wrong = n.submit(t, f, resume) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// submit sends a file until the command does not end before its end, and then once more, and says what is wrong.
func (n *drawnNode) submit(t *testing.T, f *drawnFile, resume bool) (wrong string) {
	for again := range 2 {
		said, failed := n.sends(t, resume)
		var c bulkCounts
		if _, err := fmt.Sscanf(strings.Replace(said, " lines:", " line:", 1), "%d line: %d stored, %d existed, %d refused, %d failed", &c.Lines, &c.Stored, &c.Existing, &c.Refused, &c.Failed); err != nil {
			return fmt.Sprintf("%q: %v", said, err)
		}
		good, refused := int64(f.lines-len(f.refused)), int64(len(f.refused))
		if c.Lines != int64(f.lines) || c.Stored+c.Existing != good || c.Refused != refused || c.Failed != 0 || again == 1 && c.Stored != 0 {
			return fmt.Sprintf("%+v, want %d lines, %d of them stored or there, %d refused", c, f.lines, good, refused)
		}
		if want := strings.Join(append(slices.Clone(f.refused), ""), "\n"); string(failed) != want {
			return fmt.Sprintf("kept as failed: %s, want %s", failed, want)
		}
		if _, err := os.Stat(n.file + ".progress"); !os.IsNotExist(err) {
			return fmt.Sprintf("the place is still there: %v", err)
		}
		if fmt.Sprint(n.tasks) != fmt.Sprint(f.tasks) {
			return fmt.Sprintf("tasks %v, want %v", n.tasks, f.tasks)
		}
	}
	return ""
}

// sends sends the file until the command comes to its end, and returns what it said, and what it kept.
func (n *drawnNode) sends(t *testing.T, resume bool) (said string, failed []byte) {
	for {
		cmd := &submitCmd{}
		cmd.File, cmd.Failed, cmd.Resume, cmd.RetryFor = n.file, n.failed, resume, time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		n.stop = cancel
		var out bytes.Buffer
		err := cmd.submitLines(ctx, streams{strings.NewReader(""), &out, io.Discard}, &client.Client{Base: "http://node", Timeout: time.Minute, By: n})
		stopped := ctx.Err() != nil
		cancel()
		n.work.Wait()
		for name, data := range n.left {
			if data == nil {
				_ = os.Remove(name) // it may be gone
			} else if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n.left = nil
		if stopped {
			continue
		}
		if err != nil && !strings.Contains(err.Error(), "refused") {
			return err.Error(), nil
		}
		failed, err := os.ReadFile(n.failed)
		if err != nil {
			t.Error(err)
		}
		return out.String(), failed
	}
}
