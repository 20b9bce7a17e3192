package api_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/operate"
)

// filled is a path of the description with the names of the world.
func filled(path string) string {
	return strings.NewReplacer("{type}", "order", "{id}", "t-5", "{group}", "g1", "{operation}", "op1", "{partition}", "1", "{name}", "order", "{version}", "1", "{pause}", "p1", "{token}", "x").Replace(path)
}

// TestBodiless: an operation that reads no body refuses one, also one that comes in chunks.
//
// covers: W15
func TestBodiless(t *testing.T) {
	w, handler := world(t, nil)
	_, doc := document(t, handler)
	gone, leave := context.WithCancel(t.Context())
	leave() // so that a stream that were opened would end
	n := 0
	for _, op := range operations(doc) {
		if op.is["requestBody"] != nil {
			continue
		}
		n++
		for _, body := range []io.Reader{strings.NewReader(`{"reason":"r"}`), io.MultiReader(strings.NewReader(" "))} {
			r := httptest.NewRequestWithContext(gone, op.method, filled(op.path), body)
			got := httptest.NewRecorder()
			reads := w.Reads
			apitest.As(operate.RoleAdmin, handler).ServeHTTP(got, r)
			if got.Code != 400 || !strings.Contains(got.Body.String(), "takes no body here") || w.Reads != reads {
				t.Errorf("%s with %d bytes of a body: %d %s", op.id, r.ContentLength, got.Code, got.Body)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d operations take no body, want more", n)
	}
}

// TestEveryParameterIsBounded: of every operation that is described, each parameter refuses what is too long by its own
// name, before anything is read or asked, and what is no parameter is refused by its name.
//
// covers: OP22
func TestEveryParameterIsBounded(t *testing.T) {
	_, handler := world(t, nil)
	_, doc := document(t, handler)
	long, bounded := strings.Repeat("7", 4000), 0
	for _, op := range operations(doc) {
		params, _ := op.is["parameters"].([]any)
		w, handler := world(t, nil)
		refused := func(what, target string, headers ...string) {
			t.Helper()
			body := ""
			if op.is["requestBody"] != nil {
				body = `{"reason":"r"}`
			}
			reads, asked := w.Reads, len(w.Asked)+len(w.Submitted)
			got := ask(apitest.As(operate.RoleAdmin, handler), op.method, target, body, headers...)
			if got.Code != 400 && got.Code != 413 {
				t.Errorf("%s: %s: %d %.200s, want 400", op.id, what, got.Code, got.Body)
			}
			if text := got.Body.String(); len(text) > 2000 || strings.Contains(text, long) {
				t.Errorf("%s: %s: the answer has %d bytes and repeats what was sent", op.id, what, len(text))
			}
			if w.Reads != reads || len(w.Asked)+len(w.Submitted) != asked {
				t.Errorf("%s: %s: it was read or asked all the same", op.id, what)
			}
		}
		for _, p := range params {
			p := p.(map[string]any)
			name, _ := p["name"].(string)
			switch p["in"] {
			case "query":
				refused("query "+name, filled(op.path)+"?"+url.Values{name: {long}}.Encode())
			case "path":
				refused("path "+name, filled(strings.Replace(op.path, "{"+name+"}", long, 1)))
			case "header":
				if strings.HasPrefix(name, "Duly-") || name == "traceparent" {
					continue // the front door holds those of a submission to their limits
				}
				refused("header "+name, filled(op.path), name, long)
			}
			bounded++
		}
		refused("an unknown parameter", filled(op.path)+"?unheard-of=1")
	}
	if bounded < 100 {
		t.Errorf("%d parameters were tried, want all", bounded)
	}
}

// TestThousandStreams: of 1,000 who ask for events as many are served as may be; the others are told so at once and when
// to come again, and there is room again when streams end. One actor, whatever it asks, leaves room for another.
//
// covers: OP6, P14
func TestThousandStreams(t *testing.T) {
	_, handler := world(t, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor := operate.Actor{Name: cmp.Or(r.Header.Get("From"), "vera"), Role: operate.RoleViewer}
		handler.ServeHTTP(w, r.WithContext(operate.WithActor(r.Context(), actor)))
	}))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var open, turnedAway atomic.Int64
	var wg sync.WaitGroup
	release := make(chan struct{})
	const streams = 1000
	answered := make(chan struct{}, streams)
	for range streams {
		wg.Go(func() {
			resp, err := client.Get(server.URL + "/v1/events")
			if err != nil {
				t.Error(err)
				answered <- struct{}{}
				return
			}
			defer resp.Body.Close()
			switch resp.StatusCode {
			case 200:
				open.Add(1)
				answered <- struct{}{}
				<-release
				return
			case 429:
				data, _ := io.ReadAll(resp.Body)
				if turnedAway.Add(1); resp.Header.Get("Retry-After") == "" || !strings.Contains(string(data), "are open here, which is the limit for one actor") {
					t.Errorf("%v %s", resp.Header, data)
				}
			default:
				t.Errorf("%d", resp.StatusCode)
			}
			answered <- struct{}{}
		})
	}
	for range streams {
		<-answered
	}
	if open.Load() != 32 || turnedAway.Load() != streams-32 {
		t.Errorf("%d streams were open, and %d turned away", open.Load(), turnedAway.Load())
	}
	var bodies []io.Closer
	defer func() {
		for _, body := range bodies {
			body.Close()
		}
	}()
	for i := range 33 { // of another actor the half that is left
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("From", "olga")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
		if want := map[bool]int{true: 200, false: 429}[i < 32]; resp.StatusCode != want {
			t.Errorf("stream %d of another: %d", i+1, resp.StatusCode)
		}
	}
	close(release)
	wg.Wait()
	for range 1000 { // until the server has seen that they went
		resp, err := client.Get(server.URL + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
	}
	t.Error("there is no room after all streams have ended")
}
