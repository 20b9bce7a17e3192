package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
)

// bulkFlags are for a file of submissions.
type bulkFlags struct {
	File     string        `short:"f" type:"existingfile" placeholder:"FILE" help:"Submit the tasks of a file instead: a line of JSON for each, with type, id, input and what else a submission says (see the guide to bulk submission)."`
	Resume   bool          `help:"Go on where an earlier run with --resume was cut off; the place is kept in FILE.progress."`
	Failed   string        `placeholder:"FILE" help:"Write the lines that were not stored to a file, to be mended and sent again."`
	RetryFor time.Duration `default:"1m" help:"How long to try again, with --file, while nothing is taken."`
}

// Bounds of a bulk submission.
const (
	bulkLineBytes  = 4 << 20         // of a line, of the file or the answer
	bulkSilence    = 5 * time.Minute // without an answer, before the request is made again
	bulkSaved      = time.Second     // between two writings of the place
	bulkShown      = 20              // lines that were not stored, in words
	bulkRetryFirst = 100 * time.Millisecond
	bulkRetryMost  = 5 * time.Second
)

// bulkCounts are what became of lines, as the API counts them.
type bulkCounts struct {
	Lines    int64 `json:"lines"`
	Stored   int64 `json:"stored"`
	Existing int64 `json:"existing"`
	Refused  int64 `json:"refused"`
	Failed   int64 `json:"failed"`
	Bytes    int64 `json:"bytes"` // of those lines
}

// bulkAnswer is a line of the answer.
type bulkAnswer struct {
	ID      string          `json:"id"`
	Outcome string          `json:"outcome"`
	Error   *client.Problem `json:"error"`
	Summary *struct {
		Error *client.Problem `json:"error"`
	} `json:"summary"`
}

// bulkPlace is how far a file was submitted, as FILE.progress has it.
type bulkPlace struct {
	bulkCounts
	SHA256      string `json:"sha256"`                 // of those lines
	Failed      string `json:"failed_file,omitempty"`  // where those of them are that were not stored
	FailedBytes int64  `json:"failed_bytes,omitempty"` // how long it is with them
}

// bulkRun is one submission of a file.
type bulkRun struct {
	cmd    *submitCmd
	std    streams
	client *client.Client
	file   *os.File
	size   int64
	done   bulkCounts
	place  bulkPlace // of the run before, but for failed_bytes, which goes on
	digest hash.Hash // of the lines that are answered
	bar    *progressbar.ProgressBar
	failed *os.File // nil: not wanted
	shown  int
	saved  time.Time
	moved  time.Time // when a line was last taken, or refused
}

// submitFile submits the lines of a file.
func (c *submitCmd) submitFile(ctx context.Context, std streams) error {
	switch {
	case c.Type != "":
		return misuse("TYPE, ID and INPUT stand in the lines of --file, want none here")
	case c.CompleteBy != "" || c.StartAt != "" || c.PlanVersion != "" || len(c.Label) > 0:
		return misuse("--complete-by, --start-at, --plan-version and --label stand in the lines of --file, as complete_by, start_at, plan_version and labels")
	case c.PayloadKeys != "":
		return misuse("payload-keys: the lines of --file are sent as they are, and would not be encrypted")
	}
	to, err := c.client()
	if err != nil {
		return err
	}
	return c.submitLines(ctx, std, to)
}

// submitLines submits the lines of the file to a node.
func (c *submitCmd) submitLines(ctx context.Context, std streams, to *client.Client) error {
	file, err := os.Open(c.File)
	if err != nil {
		return misuse("%v", err)
	}
	defer file.Close()
	size, err := checkLines(file)
	if err != nil {
		return err
	}
	r := &bulkRun{cmd: c, std: std, client: to, file: file, size: size, digest: sha256.New(), bar: bulkBar(std.err, size)}
	if c.Resume {
		if err := r.resume(); err != nil {
			return err
		}
	}
	if c.Failed != "" {
		if err := r.openFailed(); err != nil {
			return err
		}
		defer r.failed.Close()
	}
	err = r.all(ctx)
	_ = r.bar.Finish() // of a line on a terminal
	return r.end(err)
}

// checkLines reads a file through before anything of it is sent. Error: a line without an id, which would be another task
// each time that it is sent.
func checkLines(file *os.File) (size int64, err error) {
	lines := bufio.NewReaderSize(file, bulkLineBytes)
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		size += int64(len(line))
		if errors.Is(err, bufio.ErrBufferFull) {
			return 0, misuse("line %d of %s has more than %d bytes, the limit", number, file.Name(), bulkLineBytes)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, misuse("%v", err)
		}
		var said struct{ ID *string }
		if len(bytes.TrimSpace(line)) > 0 && json.Unmarshal(line, &said) == nil && (said.ID == nil || *said.ID == "") {
			return 0, misuse("line %d of %s has no id: sent again it would be another task", number, file.Name())
		}
		if err != nil {
			if len(bytes.TrimSpace(line)) == 0 { // a node takes blanks after the last line for none
				size -= int64(len(line))
			}
			return size, nil
		}
	}
}

// bulkBar is a progress bar where a person looks on.
func bulkBar(w io.Writer, size int64) *progressbar.ProgressBar {
	if !terminal(w) {
		return progressbar.DefaultBytesSilent(size)
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(w), progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
}

func (r *bulkRun) placeFile() string { return r.cmd.File + ".progress" }

// resume takes up the place of an earlier run, if there is one. Error: the file has changed before it.
func (r *bulkRun) resume() error {
	data, err := os.ReadFile(r.placeFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var place bulkPlace
	if err != nil || json.Unmarshal(data, &place) != nil || place.Bytes < 0 || place.Lines < 0 {
		return misuse("%s is not what an earlier run left: remove it, and all lines are sent again, which is safe", r.placeFile())
	}
	if _, err := io.Copy(r.digest, io.NewSectionReader(r.file, 0, place.Bytes)); err != nil {
		return fmt.Errorf("read %s: %w", r.cmd.File, err)
	}
	if place.Bytes > r.size || hex.EncodeToString(r.digest.Sum(nil)) != place.SHA256 {
		return misuse("%s is not the file that %s is about: its first %d lines have changed. Remove the latter, and all lines are sent, which is safe", r.cmd.File, r.placeFile(), place.Lines)
	}
	r.done, r.place = place.bulkCounts, place
	return r.bar.Set64(place.Bytes)
}

// openFailed opens the file for lines that are not stored.
func (r *bulkRun) openFailed() error {
	if a, err := os.Stat(r.cmd.Failed); err == nil {
		if b, err := r.file.Stat(); err == nil && os.SameFile(a, b) {
			return misuse("failed: %s is the file that is submitted, want another", r.cmd.Failed)
		}
	}
	var err error
	if r.failed, err = os.OpenFile(r.cmd.Failed, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return misuse("failed: %v", err)
	}
	is, err := r.failed.Stat()
	if err == nil && is.Mode().IsRegular() {
		err = r.cutFailed(is.Size())
	}
	if err != nil {
		return misuse("failed: %v", err)
	}
	return nil
}

// cutFailed leaves in the file of lines that were not stored, of that size, what is of the run that goes on. What a killed
// one has kept after its place comes again.
func (r *bulkRun) cutFailed(size int64) error {
	switch {
	case r.done.Lines == 0:
		size = 0
	case r.place.Failed == r.cmd.Failed:
		size = min(size, r.place.FailedBytes)
	}
	r.place.FailedBytes = size
	if err := r.failed.Truncate(size); err != nil {
		return err
	}
	_, err := r.failed.Seek(size, io.SeekStart)
	return err
}

// all submits what is left, in as many requests as it takes. Error: nothing was taken for too long, or it would not help
// to try again.
func (r *bulkRun) all(ctx context.Context) error {
	wait := bulkRetryFirst
	for r.moved = time.Now(); r.done.Bytes < r.size; {
		before := r.done.Lines
		err := r.request(ctx)
		if r.done.Lines > before {
			wait = bulkRetryFirst
		}
		var problem *client.Problem
		var own ownError
		var later laterError
		switch is := errors.As(err, &problem); {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return fmt.Errorf("stopped: %w", ctx.Err())
		case errors.As(err, &later):
		case errors.As(err, &own), is && problem.Status < 500 && problem.Status != http.StatusTooManyRequests && problem.Status != http.StatusRequestTimeout && r.done.Lines == before:
			return err
		case time.Since(r.moved) >= r.cmd.RetryFor:
			return fmt.Errorf("nothing was taken for %v: %w", r.cmd.RetryFor, err)
		}
		if pause.For(ctx, wait) != nil {
			return fmt.Errorf("stopped: %w", ctx.Err())
		}
		wait = min(2*wait, bulkRetryMost)
	}
	return nil
}

// ownError is of this side: to try again does not help.
type ownError struct{ error }

// laterError is of a line that may be taken later: the next request begins with it.
type laterError struct{ error }

// request makes one request and takes its answers. No error: the server has answered everything up to a place.
func (r *bulkRun) request(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(bulkSilence, func() { cancel(fmt.Errorf("nothing heard for %v", bulkSilence)) })
	defer silence.Stop()
	resp, err := r.client.Open(ctx, client.Request{Method: http.MethodPost, Path: pathOf("tasks"), Stream: io.NewSectionReader(r.file, r.done.Bytes, r.size-r.done.Bytes)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	before := r.done.Lines
	lines := bufio.NewReader(io.NewSectionReader(r.file, r.done.Bytes, r.size-r.done.Bytes))
	answers := bufio.NewScanner(resp.Body)
	answers.Buffer(make([]byte, 64<<10), bulkLineBytes)
	for answers.Scan() {
		silence.Reset(bulkSilence)
		var a bulkAnswer
		if err := json.Unmarshal(answers.Bytes(), &a); err != nil {
			return ownError{fmt.Errorf("answer of %s: %w", r.client.Base, err)}
		}
		if a.Summary != nil {
			switch p := a.Summary.Error; {
			case p != nil && (p.Status != http.StatusRequestEntityTooLarge || r.done.Lines == before):
				return p // 413 is the end of one request: the rest goes into another
			case r.done.Lines == before:
				return &client.UnreachableError{Address: r.client.Base, Err: fmt.Errorf("it answers no line after line %d", before)}
			}
			return r.save(true)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			return ownError{fmt.Errorf("%s was changed while it was read, or %s answers more lines than it was sent: %w", r.cmd.File, r.client.Base, err)}
		}
		if a.Outcome == "failed" && a.Error != nil && time.Since(r.moved) < r.cmd.RetryFor {
			return errors.Join(r.save(true), laterError{a.Error})
		}
		if err := r.take(line, &a); err != nil {
			return ownError{err}
		}
	}
	cause := errors.Join(context.Cause(ctx), answers.Err())
	if cause == nil {
		cause = io.ErrUnexpectedEOF
	}
	return errors.Join(r.save(true), &client.UnreachableError{Address: r.client.Base, Err: fmt.Errorf("the answer broke off after line %d: %w", r.done.Lines, cause)})
}

// take counts the answer to a line, and keeps one that was not stored.
func (r *bulkRun) take(line []byte, a *bulkAnswer) error {
	_, _ = r.digest.Write(line) // a hash takes everything
	r.done.Lines++
	r.done.Bytes += int64(len(line))
	_ = r.bar.Add(len(line)) // of a line on a terminal
	if a.Outcome != "failed" {
		r.moved = time.Now()
	}
	switch a.Outcome {
	case "stored":
		r.done.Stored++
	case "existing":
		r.done.Existing++
	case "refused":
		r.done.Refused++
	case "failed":
		r.done.Failed++
	default:
		return fmt.Errorf("line %d of %s: the outcome is %q, want stored, existing, refused or failed: is the node of another version?", r.done.Lines, r.cmd.File, a.Outcome)
	}
	if a.Error == nil {
		return r.save(false)
	}
	if r.shown++; r.shown <= bulkShown {
		fmt.Fprintf(r.std.err, "line %d %s: %s: %s\n", r.done.Lines, show.Clean(a.ID), a.Outcome, show.Clean(a.Error.Error()))
	} else if r.shown == bulkShown+1 {
		fmt.Fprintln(r.std.err, "further lines that are not stored are not shown")
	}
	if r.failed != nil {
		n, err := r.failed.Write(append(bytes.TrimRight(line, "\r\n"), '\n'))
		if r.place.FailedBytes += int64(n); err != nil {
			return fmt.Errorf("failed lines: %w", err)
		}
	}
	return r.save(false)
}

// save writes the place down, now and then or at once.
func (r *bulkRun) save(now bool) error {
	if !r.cmd.Resume || !now && time.Since(r.saved) < bulkSaved {
		return nil
	}
	r.saved = time.Now()
	data, err := json.Marshal(bulkPlace{r.done, hex.EncodeToString(r.digest.Sum(nil)), r.cmd.Failed, r.place.FailedBytes})
	if err != nil {
		return ownError{err}
	}
	next := filepath.Join(filepath.Dir(r.placeFile()), "."+filepath.Base(r.placeFile())+".new")
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return ownError{fmt.Errorf("place in %s: %w", r.cmd.File, err)}
	}
	if err := os.Rename(next, r.placeFile()); err != nil {
		return ownError{fmt.Errorf("place in %s: %w", r.cmd.File, err)}
	}
	return nil
}

// end says what became of the file, and gives what the exit status is made of.
func (r *bulkRun) end(err error) error {
	if err == nil && r.cmd.Resume {
		if err := os.Remove(r.placeFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("place in %s: %w", r.cmd.File, err)
		}
	}
	data, failed := json.Marshal(r.done)
	if failed != nil {
		return failed
	}
	var d bulkCounts
	if failed := r.cmd.show(r.std.out, data, "", bulkColumns, &d, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d stored, %d existed, %d refused, %d failed\n", say.Count(d.Lines, "line"), d.Stored, d.Existing, d.Refused, d.Failed)
	}); failed != nil {
		return failed
	}
	switch {
	case err != nil && r.cmd.Resume:
		return fmt.Errorf("%s, after line %d; the same command goes on there: %w", r.cmd.File, r.done.Lines, err)
	case err != nil:
		return fmt.Errorf("%s, after line %d; sent again, what is stored exists, and with --resume a run can go on where it was cut off: %w", r.cmd.File, r.done.Lines, err)
	case r.done.Failed > 0:
		return awayError{fmt.Errorf("%s failed and may be taken later, %d refused%s", say.Count(r.done.Failed, "line"), r.done.Refused, r.where())}
	case r.done.Refused > 0:
		return fmt.Errorf("%s refused%s", say.Count(r.done.Refused, "line"), r.where())
	}
	return nil
}

// where says what to do about lines that are not stored.
func (r *bulkRun) where() string {
	if r.failed != nil {
		return ": they are in " + r.cmd.Failed
	}
	return ": mend them and send the file again, or have --failed FILE take them"
}
