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
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// partVisitor is the process of those who ask the node over HTTP. In life they sit at other machines.
const partVisitor = "visitor"

const (
	askersMax    = 8                // questions that are out at a time
	askMax       = 10 * time.Second // for an answer
	answerBytes  = 8 << 20
	streamsOpen  = 20 * time.Second // for every stream to tell something
	reopenAfter  = 3 * time.Second  // a stream that has ended, as the console's page does
	eventMax     = 4 << 20          // bytes of a line of a stream
	answersEvery = 20 * time.Millisecond
)

// visitorSettings say whom it visits.
type visitorSettings struct {
	URL     string
	Token   string
	Client  string // a token of the role client, for attacks
	NATSURL string // for attacks
	Type    string // of the tasks whose pages it opens
	Profile string
}

// visit says what it does from now on. The answer comes when every stream has told something; that to End is visited.
type visit struct {
	Follow []string // streams of events, by path
	Tabs   int      // of the console: a page each, and the stream that it opens
	Rate   int      // questions a second, of all kinds in turn
	Attack int      // attacks a second, of all kinds in turn
	End    bool
}

// visited is what it has seen.
type visited struct {
	Seconds  float64        `json:"seconds"`
	Asked    []OperatorRead `json:"asked"` // by question; rows: how many times
	Failed   int            `json:"failed"`
	Failure  string         `json:"failure,omitempty"` // the first
	Late     int            `json:"late"`              // questions left out, because as many as may be were out
	Events   int64          `json:"events"`            // of all streams
	Bytes    int64          `json:"bytes"`             // of these
	Reopened int64          `json:"reopened"`          // streams that ended and were opened again
	CPU      float64        `json:"cpu_s"`             // of the visitor itself
}

func runVisitor(ctx context.Context, p *part) error {
	var s visitorSettings
	if ok, err := p.read(&s); !ok || err != nil {
		return err
	}
	stopProfile, err := profile(s.Profile)
	if err != nil {
		return err
	}
	if err := p.out.Encode(struct{}{}); err != nil {
		return err
	}
	var v *visitor
	end := func() *visited {
		if v == nil {
			return &visited{}
		}
		seen := v.end()
		v = nil
		return seen
	}
	defer end()
	for {
		var w visit
		ok, err := p.read(&w)
		switch {
		case err != nil:
			return err
		case !ok:
			return stopProfile()
		case w.End:
			err = p.out.Encode(end())
		default:
			end()
			if v, err = begins(ctx, s, w); err == nil {
				err = p.out.Encode(struct{}{})
			}
		}
		if err != nil {
			return err
		}
	}
}

// visitor asks until it is ended.
type visitor struct {
	settings visitorSettings
	client   *http.Client
	streams  *http.Client       // without a limit of time
	stop     context.CancelFunc // of the streams
	wg       sync.WaitGroup
	silence  context.CancelFunc // of the questions: those that are out are answered
	asking   sync.WaitGroup
	began    time.Time
	cpu      float64 // used before

	events, bytes, reopened atomic.Int64

	mu     sync.Mutex
	took   map[string][]float64 // by question, in ms
	failed int
	first  error
	late   int
	ids    []string // tasks of the newest list
}

// begins opens all streams, waits until each has told something, and begins to ask.
func begins(ctx context.Context, s visitorSettings, w visit) (*visitor, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = askersMax
	ctx, stop := context.WithCancel(ctx)
	silent, silence := context.WithCancel(ctx)
	v := &visitor{silence: silence, settings: s, client: &http.Client{Transport: transport, Timeout: askMax}, streams: &http.Client{Transport: transport},
		stop: stop, cpu: ownCPU(), took: map[string][]float64{}}
	opened := make(chan struct{}, w.Tabs+len(w.Follow))
	for _, path := range w.Follow {
		v.wg.Go(func() { v.follow(ctx, path, opened) })
	}
	for i := range w.Tabs {
		v.wg.Go(func() { v.tab(ctx, i, opened) })
	}
	limit := time.NewTimer(streamsOpen)
	defer limit.Stop()
	for range w.Tabs + len(w.Follow) {
		select {
		case <-opened:
		case <-limit.C:
			seen := v.end()
			return nil, fmt.Errorf("not every stream was opened within %v: %s", streamsOpen, seen.Failure)
		}
	}
	v.mu.Lock()
	v.began = time.Now()
	v.mu.Unlock()
	if w.Rate > 0 {
		v.asking.Go(func() { v.ask(ctx, silent, w.Rate) })
	}
	if w.Attack > 0 {
		v.asking.Go(func() { v.attack(ctx, silent, w.Attack) })
	}
	return v, nil
}

// end ends all and tells what was seen.
func (v *visitor) end() *visited {
	v.silence()
	v.asking.Wait()
	v.stop()
	v.wg.Wait()
	v.client.CloseIdleConnections()
	seen := &visited{Failed: v.failed, Late: v.late, Events: v.events.Load(), Bytes: v.bytes.Load(), Reopened: v.reopened.Load(), CPU: ownCPU() - v.cpu}
	if !v.began.IsZero() {
		seen.Seconds = time.Since(v.began).Seconds()
	}
	if v.first != nil {
		seen.Failure = v.first.Error()
	}
	for name, took := range v.took {
		seen.Asked = append(seen.Asked, readOf(name, len(took), took))
	}
	slices.SortFunc(seen.Asked, func(a, b OperatorRead) int { return strings.Compare(a.Question, b.Question) })
	return seen
}

// readOf are the quantiles of times in milliseconds, of which there must be one.
func readOf(name string, rows int, took []float64) OperatorRead {
	slices.Sort(took)
	return OperatorRead{Question: name, Rows: rows, P50: took[len(took)/2], P95: took[len(took)*95/100], Max: took[len(took)-1]}
}

// note keeps what a question took, or that it failed.
func (v *visitor) note(name string, began time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.took[name] = append(v.took[name], ms(time.Since(began)))
		return
	}
	if v.failed++; v.first == nil {
		v.first = fmt.Errorf("%s: %w", name, err)
	}
}

func (v *visitor) request(ctx context.Context, path, accept string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.settings.URL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+v.settings.Token)
	r.Header.Set("Accept", accept)
	return r, nil
}

// get reads what is at a path.
func (v *visitor) get(ctx context.Context, path string) ([]byte, error) {
	r, err := v.request(ctx, path, "application/json, text/html")
	if err != nil {
		return nil, err
	}
	return bodyOf(v.client, r)
}

// bodyOf is the body of a good answer.
func bodyOf(client *http.Client, r *http.Request) ([]byte, error) {
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, answerBytes))
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s: %.200s", answer.Status, body)
	}
	return body, err
}

// questions are what an operator asks, in turn. An operator who looks for one task asks for it again and again; lists,
// groups and counts come between.
func (v *visitor) questions() []askedPath {
	task := "/v1/tasks/" + v.settings.Type + "/%s"
	hour := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	return []askedPath{
		{"list", "/v1/tasks?limit=50"},
		{"why", task},
		{"page of a task", "/console/tasks/" + v.settings.Type + "/%s"},
		{"failure groups", "/v1/failures?limit=50"},
		{"why", task},
		{"list by type and state", "/v1/tasks?limit=50&state=processed&type=" + v.settings.Type},
		{"journal", task + "/journal?limit=100"},
		{"metrics", "/metrics"},
		{"page of a task", "/console/tasks/" + v.settings.Type + "/%s"},
		{"list of undone tasks", "/v1/tasks?limit=50&state=undone"},
		{"why", task},
		{"page of the overview", "/console/"},
		{"list in error, by time", "/v1/tasks?limit=50&state=error&created_from=" + hour},
		{"page of failures", "/console/failures"},
		{"page of tasks", "/console/tasks?state=processing"},
		{"why", task},
		{"counts", "/v1/counts"},
		{"overview", "/v1/overview"},
		{"agents", "/v1/agents"},
		{"audit trail", "/v1/audit?limit=50"},
	}
}

// askedPath is a question; %s stands for a task's id.
type askedPath struct{ name, path string }

// ask asks so many questions a second until silent ends, and waits for the answers.
func (v *visitor) ask(ctx, silent context.Context, rate int) {
	questions := v.questions()
	v.paced(silent, rate, askersMax, func(i int) func() {
		q := questions[i%len(questions)]
		path, ok := v.fill(q.path, i)
		if !ok {
			return nil // no task was listed yet
		}
		return func() {
			began := time.Now()
			body, err := v.get(ctx, path)
			v.note(q.name, began, err)
			if q.name == "list by type and state" && err == nil {
				v.learn(body)
			}
		}
	})
}

// paced starts one request after the other, so many a second, until silent ends, and waits for all. next makes the request;
// nil: there is none now. While so many as most are out, further ones are left out and counted as late.
func (v *visitor) paced(silent context.Context, rate, most int, next func(i int) func()) {
	var wg sync.WaitGroup
	defer wg.Wait()
	out := make(chan struct{}, most)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-silent.Done():
			return
		case <-tick.C:
		}
		request := next(i)
		if request == nil {
			continue
		}
		select {
		case out <- struct{}{}:
		default:
			v.mu.Lock()
			v.late++
			v.mu.Unlock()
			continue
		}
		wg.Go(func() {
			defer func() { <-out }()
			request()
		})
	}
}

// fill puts a task's id in its place; false: none is known.
func (v *visitor) fill(path string, i int) (string, bool) {
	if !strings.Contains(path, "%s") {
		return path, true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.ids) == 0 {
		return "", false
	}
	return strings.Replace(path, "%s", url.PathEscape(v.ids[i%len(v.ids)]), 1), true
}

// learn keeps the tasks of a list.
func (v *visitor) learn(body []byte) {
	var page struct {
		Tasks []struct {
			ID string `json:"id"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		v.note("list", time.Now(), err)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ids = v.ids[:0]
	for _, t := range page.Tasks {
		v.ids = append(v.ids, t.ID)
	}
}

// follow reads a stream of events, again and again until ctx ends. It tells opened once, when the first line has come.
func (v *visitor) follow(ctx context.Context, path string, opened chan<- struct{}) {
	once := sync.OnceFunc(func() { opened <- struct{}{} })
	for {
		err := v.stream(ctx, path, once)
		if ctx.Err() != nil {
			return
		}
		v.reopened.Add(1)
		v.note(path, time.Now(), fmt.Errorf("the stream ended: %w", err))
		if !pause(ctx, reopenAfter) {
			return
		}
	}
}

func (v *visitor) stream(ctx context.Context, path string, opened func()) error {
	r, err := v.request(ctx, path, "text/event-stream")
	if err != nil {
		return err
	}
	answer, err := v.streams.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(make([]byte, 0, 64<<10), eventMax)
	for lines.Scan() {
		opened()
		v.bytes.Add(int64(len(lines.Bytes())))
		if bytes.HasPrefix(lines.Bytes(), []byte("data:")) {
			v.events.Add(1)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

// tabPages are what tabs of the console show.
var tabPages = []string{"/console/", "/console/tasks", "/console/failures", "/console/operations"}

var (
	tabStream = regexp.MustCompile(`<body[^>]* data-live="([^"]+)"`)
	tabAssets = regexp.MustCompile(`(?:src|href)="([^"]*/assets/[^"]+)"`)
)

// tab is a tab of the console that is seen: it loads its page, the first one the files of the page too, which a browser
// keeps, and opens the stream that the page names. A page asks for nothing else while nothing happens.
func (v *visitor) tab(ctx context.Context, i int, opened chan<- struct{}) {
	began := time.Now()
	page, err := v.get(ctx, tabPages[i%len(tabPages)])
	if err == nil && i == 0 {
		for _, asset := range tabAssets.FindAllSubmatch(page, -1) {
			if _, failed := v.get(ctx, string(asset[1])); failed != nil {
				err = failed
			}
		}
	}
	stream := tabStream.FindSubmatch(page)
	if err == nil && stream == nil {
		err = errors.New("the page names no stream")
	}
	if err != nil {
		v.note("tab", began, err)
		return
	}
	v.follow(ctx, string(stream[1]), opened)
}

// answers waits until a node serves HTTP.
func answers(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, ownedMax)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", http.NoBody)
		if err != nil {
			return err
		}
		if _, err = bodyOf(client, r); err == nil {
			return nil
		}
		if !pause(ctx, answersEvery) {
			return fmt.Errorf("the node does not answer over HTTP: %w", err)
		}
	}
}
