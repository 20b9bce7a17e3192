package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"duly.dev/duly/internal/operate"
)

// What an operator does: requests to the HTTP API, sent again with the same key until there is an
// answer.

const (
	askMax     = 12 * time.Second // one request
	askAgain   = 100 * time.Millisecond
	answerRead = 8 << 20 // bytes of an answer that are read
)

// api is where the node that serves operators listens.
func (w *world) api() string {
	name := "ingest"
	if w.stage.topology == devOnly {
		name = "dev"
	}
	return strings.TrimSuffix(w.role(name).ready, "/readyz")
}

// reply is an answer of the API.
type reply struct {
	status int
	body   []byte
}

// String is the answer for a person.
func (r reply) String() string {
	return fmt.Sprintf("%d %s", r.status, strings.TrimSpace(string(r.body[:min(len(r.body), 300)])))
}

// request asks once. Error: there was no answer.
func request(ctx context.Context, base, method, path, key string, body any) (reply, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return reply{}, fmt.Errorf("%s %s: %w", method, path, err)
		}
		in = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, in)
	if err != nil {
		return reply{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerRead))
	if err != nil {
		return reply{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return reply{resp.StatusCode, text}, nil
}

// passing reports whether an answer says to come again.
func (r reply) passing() bool { return r.status == http.StatusTooManyRequests || r.status >= 500 }

// insist asks until there is an answer that is not "later", or ctx ends. out takes a good one.
func (w *world) insist(ctx context.Context, method, path, key string, body, out any) (reply, error) {
	for {
		r, err := request(ctx, w.api(), method, path, key, body)
		if err == nil && !r.passing() {
			if out != nil && r.status < 300 {
				if err := json.Unmarshal(r.body, out); err != nil {
					return r, fmt.Errorf("%s %s: %w", method, path, err)
				}
			}
			return r, nil
		}
		if late := pause(ctx, askAgain); late != nil {
			return r, fmt.Errorf("%s %s: %w", method, path, errors.Join(late, err, fmt.Errorf("last answer %s", r)))
		}
	}
}

// demand is insist where anything but a good answer is an error.
func (w *world) demand(ctx context.Context, method, path, key string, body, out any) error {
	r, err := w.insist(ctx, method, path, key, body, out)
	if err == nil && r.status >= 300 {
		err = fmt.Errorf("%s %s: %s", method, path, r)
	}
	return err
}

// auditOf are the entries of the audit trail whose target begins so.
func (w *world) auditOf(ctx context.Context, target string) ([]operate.AuditEntry, error) {
	var all []operate.AuditEntry
	f := operate.AuditFilter{Target: target, Limit: operate.ListMax}
	for {
		store, err := w.store()
		if err != nil {
			return nil, err
		}
		page, err := store.Audit(ctx, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if page.Next == "" {
			return all, nil
		}
		f.After = page.Next
	}
}

// audited says what of the trail is not as it should be: of each action so many entries at least,
// and every entry with an outcome.
func (w *world) audited(ctx context.Context, target string, least map[string]int) ([]string, error) {
	return w.added(ctx, target, 0, least)
}

// added says what is missing of what was added to the trail of a target since it had so many entries:
// of each action so many at least, and who did it.
func (w *world) added(ctx context.Context, target string, before int, least map[string]int) (wrong []string, err error) {
	entries, err := w.auditOf(ctx, target)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, e := range entries[:max(0, len(entries)-before)] { // the newest are first
		found[e.Action]++
		if e.Actor == "" {
			wrong = append(wrong, fmt.Sprintf("audit entry %d of %s names no actor", e.Number, target))
		}
	}
	for action, n := range least {
		if found[action] < n {
			wrong = append(wrong, fmt.Sprintf("audit of %s has %d entries %s, want %d", target, found[action], action, n))
		}
	}
	return wrong, nil
}

// taskPath is a task's in the API.
func taskPath(taskType, id string) string {
	return "/v1/tasks/" + url.PathEscape(taskType) + "/" + url.PathEscape(id)
}

// decoded is the body of a good answer.
func decoded[T any](r reply) (v T, err error) {
	if err = json.Unmarshal(r.body, &v); err != nil {
		err = fmt.Errorf("answer %s: %w", r, err)
	}
	return v, err
}
