package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

// A node of half a gigabyte, at half of what it can do, beside everybody who wants it down at once. The attackers are on
// its processors too, so their number is bounded: what they cost themselves is in the figures.
const (
	attackedMiB     = 512
	attackedRate    = 1500
	attackedSeconds = 10
	attackedPairs   = 3
	attackRate      = 150 // attempts a second
	attacksOut      = 64  // at a time
	attackMax       = 5 * time.Second
	slowMost        = 100 // connections that never end their headers
	servedLeast     = 0.8
)

// attacked measures the same load without attackers and with them, on a node that has attackedMiB of memory.
func attacked(ctx context.Context, s *settings, command string, out io.Writer) error {
	seconds, rate := orElse(s.seconds, attackedSeconds), orElse(s.rate, attackedRate)
	res, err := newPairs(s, command, fmt.Sprintf("%d attacks a second in turn, %d slow connections; the node has %d MiB", attackRate, slowMost, attackedMiB), seconds)
	if err != nil {
		return err
	}
	c := &Compared{Rate: rate, What: "attackers"}
	memory := 0.0
	_, err = within(ctx, rigOptions{HTTP: true, Memory: attackedMiB << 20}, s, func(r *rig) (*Result, error) {
		visitor := visitorSettings{Type: drone.Type, NATSURL: r.natsURL}
		for role, token := range map[operate.Role]*string{operate.RoleClient: &visitor.Client, operate.RoleViewer: &visitor.Token} {
			if _, *token, err = node.CreateToken(ctx, r.database, "bench-"+string(role), role, time.Time{}, "bench"); err != nil {
				return nil, err
			}
		}
		var last *Result
		var err error
		c.Pairs, err = alternate(orElse(s.pairs, attackedPairs), func(_ int, with bool) (Side, error) {
			load := func() (err error) {
				if last, err = r.load(ctx, []segment{warmUp, {Rate: rate, For: time.Duration(seconds) * time.Second}}); err == nil {
					memory = max(memory, last.PSSMax.Engine)
				}
				return err
			}
			if !with {
				err := load()
				return sideOf(cmp.Or(last, &Result{})), err
			}
			seen, err := r.visitedAs(ctx, visitor, visit{Attack: attackRate}, load)
			if err != nil {
				return Side{}, err
			}
			c.Visited = append(c.Visited, seen)
			return sideOf(last), nil
		})
		return last, err
	})
	if err != nil {
		return err
	}
	c.settle()
	res.Compared = []*Compared{c}
	if err := publishTable(s, res, out); err != nil {
		return err
	}
	for _, seen := range c.Visited {
		for _, a := range seen.Asked {
			fmt.Fprintf(os.Stderr, "attacked: %-40s %5d times, p50 %.0f ms, longest %.0f ms\n", a.Question, a.Rows, a.P50, a.Max)
		}
	}
	fmt.Fprintf(os.Stderr, "attacked: the engine took %.0f MiB at most\n", memory)
	served := ratio(c.With.TasksPerS, c.Without.TasksPerS)
	if served < servedLeast || memory > attackedMiB {
		return fmt.Errorf("served %.0f%% of its rate and took %.0f MiB under attack, want at least %.0f%% and at most %d MiB", 100*served, memory, 100*servedLeast, attackedMiB)
	}
	return nil
}

// attack is one attempt; its error says that it had an effect it must not have.
type attack struct {
	name string
	try  func(ctx context.Context) error
}

// attacks are the attempts, in turn: without credentials, as a client, as a viewer, and on NATS.
func (v *visitor) attacks(nc *nats.Conn) []attack {
	names := wire.Names{}
	long, deep := strings.Repeat("x", 8<<20), strings.Repeat("[", 100_000)
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = io.WriteString(zip, strings.Repeat("0", 64<<20)) // to memory
	_ = zip.Close()
	task := "/v1/tasks/" + v.settings.Type
	http := func(name, token, method, path, kind, encoding, body string) attack {
		return attack{name, func(ctx context.Context) error { return v.tryHTTP(ctx, token, method, path, kind, encoding, body) }}
	}
	publish := func(name, subject, data string) attack {
		return attack{name, func(context.Context) error { return nc.PublishRequest(subject, "_INBOX.attack.x", []byte(data)) }}
	}
	viewer, client := v.settings.Token, v.settings.Client
	large := strings.Repeat("y", 900<<10)
	return []attack{
		http("none: a body of 8 MiB", "", "POST", task, "application/json", "", long),
		http("none: sign in", "", "POST", "/login", "application/x-www-form-urlencoded", "", "token="+url.QueryEscape("duly_aaaaaaaa_"+long[:4000])),
		http("none: a gzip bomb", "", "POST", task, "application/json", "gzip", bomb.String()),
		http("none: a long path", "", "GET", "/"+long[:200<<10], "", "", ""),
		http("none: a stream", "", "GET", "/v1/live", "", "", ""),
		http("client: depth", client, "PUT", task+"/a1", "application/json", "", deep),
		http("client: a gzip bomb", client, "PUT", task+"/a2", "application/json", "gzip", bomb.String()),
		http("client: a body of 8 MiB", client, "PUT", task+"/a3", "application/json", "", `{"a":"`+long+`"}`),
		http("client: a plan that is not there", client, "PUT", "/v1/tasks/nothing/a4", "application/json", "", "{}"),
		http("client: what only operators may", client, "POST", "/v1/pauses", "application/json", "", `{"agent":"x","reason":"x"}`),
		http("viewer: a list by everything", viewer, "GET", "/v1/tasks?limit=1000&state=error&created_from=2000-01-01T00:00:00Z&label=a%3Db", "", "", ""),
		http("viewer: counts", viewer, "GET", "/v1/counts", "", "", ""),
		http("viewer: a page of the console", viewer, "GET", "/console/tasks?q="+long[:4000], "", "", ""),
		http("viewer: a change", viewer, "POST", "/v1/operations", "application/json", "", deep),
		http("viewer: a stream", viewer, "GET", "/v1/events", "", "", ""),
		publish("NATS: a submission of rubbish", names.SubmitSubject(v.settings.Type, "b1"), large),
		publish("NATS: a submission of depth", names.SubmitSubject(v.settings.Type, "b2"), deep),
		publish("NATS: a plan that is not there", names.SubmitSubject("nothing", "b3"), "{}"),
		publish("NATS: forged replies", names.ReplySubject(0, 1, 1)+".forged", large),
		publish("NATS: a plan of rubbish", names.SubjectPlansApply(), deep),
	}
}

// tryHTTP sends a request and reads what it is told, or for a while what a stream tells.
func (v *visitor) tryHTTP(ctx context.Context, token, method, path, kind, encoding, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, v.settings.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"Content-Type": kind, "Content-Encoding": encoding} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := v.streams.Do(r)
	if err != nil {
		return nil // cut off, as it may be
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, answerBytes)) // the same
	if method != http.MethodGet && answer.StatusCode < 300 {
		return fmt.Errorf("%s %.60s was taken: %s", method, path, answer.Status)
	}
	return nil
}

// attack tries all attacks in turn, so many a second, until silent ends, beside connections that never end their headers.
func (v *visitor) attack(ctx, silent context.Context, rate int) {
	nc, err := nats.Connect(v.settings.NATSURL)
	if err != nil {
		v.note("NATS", time.Now(), err)
		return
	}
	defer nc.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range slowMost {
		wg.Go(func() { v.slow(silent) })
	}
	all := v.attacks(nc)
	v.paced(silent, rate, attacksOut, func(i int) func() {
		a := all[i%len(all)]
		return func() {
			ctx, cancel := context.WithTimeout(ctx, attackMax)
			defer cancel()
			began := time.Now()
			v.note(a.name, began, a.try(ctx))
		}
	})
}

// slow holds a connection with half a request, and takes another when it is cut off.
func (v *visitor) slow(silent context.Context) {
	address := strings.TrimPrefix(v.settings.URL, "http://")
	for silent.Err() == nil {
		c, err := (&net.Dialer{}).DialContext(silent, "tcp", address)
		if err == nil {
			stop := context.AfterFunc(silent, func() { _ = c.Close() })
			_, err = io.WriteString(c, "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nX-Slow: ")
			_, read := io.Copy(io.Discard, c)
			err = errors.Join(err, read)
			stop()
			_ = c.Close()
		}
		if err != nil && !pause(silent, 100*time.Millisecond) {
			return
		}
	}
}
