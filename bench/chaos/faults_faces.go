package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/operate"
)

// Faults of what people look at: a receiver of alerts that dies, readers that are many and slow.

// receiver takes alerts as a webhook does.
type receiver struct {
	listener net.Listener
	server   *http.Server
	wg       sync.WaitGroup

	mu   sync.Mutex
	away bool                // it answers 503, as a proxy does whose service is gone
	told map[string]int      // of each task that alerts were about, how many deliveries
	ids  map[string]struct{} // of alerts
	all  int                 // alerts that were taken
}

// alertBody is what is read of an alert.
type alertBody struct {
	ID   string `json:"id"`
	Data struct {
		Name  string            `json:"name"`
		Times int               `json:"times"`
		More  map[string]string `json:"more"`
	} `json:"data"`
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver of alerts: %w", err)
	}
	r := &receiver{listener: l, told: map[string]int{}, ids: map[string]struct{}{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: askMax}
	r.wg.Go(func() { _ = r.server.Serve(l) }) // until close
	return r, nil
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	var body alertBody
	err := json.NewDecoder(io.LimitReader(req.Body, answerRead)).Decode(&body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	default:
		r.all++
		r.ids[body.ID] = struct{}{}
		if task := body.Data.More["task"]; task != "" {
			r.told[task]++
		}
	}
}

func (r *receiver) setAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *receiver) knows(task string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[task] > 0
}

func (r *receiver) close() error {
	err := r.server.Close()
	r.wg.Wait()
	return err
}

const (
	channelName = "alerts/channels/chaos"
	alertTasks  = 5
	canaryEvery = 3 * time.Second
)

// openReceiver has a receiver, and waits until alerts come to it.
func (w *world) openReceiver(ctx context.Context) error {
	if w.receiver != nil {
		return nil
	}
	r, err := newReceiver()
	if err != nil {
		return err
	}
	w.receiver = r
	document, err := json.Marshal(map[string]any{"kind": "webhook", "url": "http://" + r.listener.Addr().String() + "/", "rate": 600, "alerts": []string{"task-error"}})
	if err != nil {
		return fmt.Errorf("channel of alerts: %w", err)
	}
	store, err := w.store()
	if err == nil {
		err = store.PutSetting(ctx, channelName, document)
	}
	if err != nil {
		return fmt.Errorf("channel of alerts: %w", err)
	}
	words := w.words()
	for {
		ids, err := w.plant(ctx, 1, drone.StepAccount, words)
		if err != nil {
			return err
		}
		heard, cancel := context.WithTimeout(ctx, canaryEvery)
		err = w.await(heard, "no alert", func(context.Context) (bool, error) { return r.knows(ids[0]), nil })
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// killReceiver lets the receiver of alerts die while tasks fail, kills the sender too, and has the
// receiver back: each alert arrives.
func killReceiver(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	if err := w.openReceiver(ctx); err != nil {
		return err
	}
	in.on = "receiver of alerts"
	in.begins()
	w.receiver.setAway(true)
	ids, err := w.plant(ctx, alertTasks, drone.StepAccount, w.words())
	if err == nil {
		err = pause(ctx, in.hold)
	}
	if err == nil {
		var p *process
		if p, err = w.runner(ctx); err == nil {
			err = w.kill(ctx, in, p)
		}
	}
	w.receiver.setAway(false)
	for _, id := range ids {
		if err != nil {
			break
		}
		if late := w.await(ctx, "", func(context.Context) (bool, error) { return w.receiver.knows(id), nil }); late != nil {
			in.wrong = append(in.wrong, fmt.Sprintf("the alert about task %s has not arrived", id))
		}
	}
	w.receiver.mu.Lock()
	in.on += fmt.Sprintf(", %d alerts in %d deliveries", len(w.receiver.ids), w.receiver.all)
	w.receiver.mu.Unlock()
	return err
}

const (
	readersMost = 200 // streams at a time
	readersSlow = 20  // of them, which read nothing
	readersLook = 4 * time.Second
	readersWait = 20 * time.Second // until each has heard something, on a machine without a processor to spare
)

// reader is one stream of the API that is read.
type reader struct {
	resp *http.Response

	mu   sync.Mutex
	last string          // id of the newest event
	seen map[string]bool // ids of tasks
	n    int
}

// openReader begins a stream; path has what it is of. A node that has as many as it takes refuses: nil.
func openReader(ctx context.Context, client *http.Client, base, path, last string) (*reader, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("stream %s: %w", path, err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, resp.StatusCode, resp.Body.Close()
	}
	return &reader{resp: resp, last: last, seen: map[string]bool{}}, resp.StatusCode, nil
}

// read reads until the stream ends.
func (r *reader) read() {
	lines := bufio.NewScanner(r.resp.Body)
	lines.Buffer(nil, answerRead)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		r.mu.Lock()
		switch name {
		case "id":
			r.last = value
		case "data":
			r.n++
			var e operate.Event
			if json.Unmarshal([]byte(value), &e) == nil && e.Task != "" {
				r.seen[e.Task] = true
			}
		}
		r.mu.Unlock()
	}
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// manyReaders opens 200 streams, some of which read nothing, and one that is followed over a kill of
// the node that serves it: it hears the end of each delivery that was made meanwhile. The engine
// goes on beside them.
func manyReaders(ctx context.Context, w *world, in *injection) error {
	ctx, cancel := context.WithTimeout(ctx, operatorMax)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	defer client.CloseIdleConnections()
	follower, _, err := openReader(ctx, client, w.api(), "/v1/events?type="+drone.Type, "")
	if err != nil || follower == nil {
		return fmt.Errorf("the stream of events cannot be followed: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() { follower.resp.Body.Close() }()
	wg.Go(follower.read)
	in.begins()
	all, slow, refused, err := w.openReaders(ctx, client)
	defer func() {
		for _, r := range slices.Concat(all, slow) {
			r.resp.Body.Close()
		}
	}()
	for _, r := range all {
		wg.Go(r.read)
	}
	if err == nil {
		err = w.await(ctx, "the stream of events tells nothing", func(context.Context) (bool, error) { return follower.count() > 0, nil })
	}
	if err == nil {
		err = pause(ctx, readersLook)
	}
	if err != nil {
		return err
	}
	mute := func() (n int) {
		for _, r := range all {
			if r.count() == 0 {
				n++
			}
		}
		return n
	}
	heard, stop := context.WithTimeout(ctx, readersWait)
	defer stop()
	if w.await(heard, "streams tell nothing", func(context.Context) (bool, error) { return mute() == 0, nil }) != nil {
		in.wrong = append(in.wrong, fmt.Sprintf("%d of %d streams tell nothing", mute(), len(all)))
	}
	in.on = fmt.Sprintf("%d readers, %d more that read nothing, %d refused", len(all), len(slow), refused)
	door := w.role("ingest")
	if w.stage.topology == devOnly {
		door = w.role("dev")
	}
	follower.resp.Body.Close()
	if err := w.kill(ctx, in, door); err != nil {
		return err
	}
	return w.follow(ctx, in, client, follower)
}

// openReaders opens streams of events and of live numbers.
func (w *world) openReaders(ctx context.Context, client *http.Client) (all, slow []*reader, refused int, err error) {
	for i := range readersMost {
		path := "/v1/events?type=" + drone.Type
		if i%2 == 1 {
			path = "/v1/live"
		}
		r, status, err := openReader(ctx, client, w.api(), path, "")
		switch {
		case err != nil:
			return all, slow, refused, err
		case r == nil && status == http.StatusTooManyRequests:
			refused++
		case r == nil:
			return all, slow, refused, fmt.Errorf("stream %s: %d", path, status)
		case len(slow) < readersSlow:
			slow = append(slow, r)
		default:
			all = append(all, r)
		}
	}
	return all, slow, refused, nil
}

// follow goes on after the last event that was heard, and hears the ends of fresh deliveries, the
// first of which were made before.
func (w *world) follow(ctx context.Context, in *injection, client *http.Client, was *reader) error {
	var ids []string
	for partition := range partitions {
		id, err := w.load.submitTo(ctx, partition)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if _, err := w.endedAll(ctx, ids); err != nil {
		return err
	}
	was.mu.Lock()
	last := was.last
	was.mu.Unlock()
	var r *reader
	err := w.await(ctx, "the stream of events cannot be followed again", func(context.Context) (bool, error) {
		var status int
		var err error
		if r, status, err = openReader(ctx, client, w.api(), "/v1/events?type="+drone.Type, last); err == nil && r == nil {
			err = fmt.Errorf("status %d", status)
		}
		return r != nil, err
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(r.read)
	missing := ""
	bounded, cancel := context.WithTimeout(ctx, readersMax)
	err = w.await(bounded, "", func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, id := range ids {
			if !r.seen[id] {
				missing = id
				return false, nil
			}
		}
		return true, nil
	})
	cancel()
	err2 := r.resp.Body.Close()
	wg.Wait()
	if err != nil && ctx.Err() == nil {
		in.wrong = append(in.wrong, fmt.Sprintf("the stream of events, followed after %s, does not tell the end of %s", last, missing))
		err = nil
	}
	return errors.Join(err, err2)
}

// readersMax is how long what has ended may take to be told to a reader.
const readersMax = 20 * time.Second
