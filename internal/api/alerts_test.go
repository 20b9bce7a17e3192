package api_test

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/operate"
)

// TestAlertChannels: channels are made, tested, changed and forgotten over HTTP; their secrets are used and shown nowhere,
// and the audit trail says who did what without them.
//
// covers: OP16, P9
func TestAlertChannels(t *testing.T) {
	w, handler := world(t, nil)
	if err := w.Deliver(); err != nil {
		t.Fatal(err)
	}
	admin := apitest.As(operate.RoleAdmin, handler)
	var got *http.Request
	status := http.StatusNoContent
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Connection", "close")
		w.WriteHeader(status)
	}))
	defer receiver.Close()
	const path = "/v1/settings/alerts"
	key := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a signing key of thirty-two byte"))
	all := "" // that was ever answered
	put := func(name, body string, code int, says ...string) {
		t.Helper()
		answer := ask(admin, "PUT", path+"/"+name, body)
		all += answer.Body.String()
		if answer.Code != code {
			t.Errorf("put %s %s: %d %s, want %d", name, body, answer.Code, answer.Body, code)
		}
		for _, text := range says {
			if !strings.Contains(answer.Body.String(), text) {
				t.Errorf("put %s: %s, want %s", name, answer.Body, text)
			}
		}
	}
	read := func(target string, code int, says ...string) string {
		t.Helper()
		answer := ask(admin, "GET", target, "")
		all += answer.Body.String()
		if answer.Code != code {
			t.Errorf("get %s: %d %s, want %d", target, answer.Code, answer.Body, code)
		}
		for _, text := range says {
			if !strings.Contains(answer.Body.String(), text) {
				t.Errorf("get %s: %s, want %s", target, answer.Body, text)
			}
		}
		return answer.Body.String()
	}
	read(path, 200, `"channels":[]`)
	put("ops", `{"kind":"webhook","url":"`+receiver.URL+`","severity":"warning","secret":"`+key+`"}`, 204)
	read(path+"/ops", 200, `"name":"ops"`, `"kind":"webhook"`, `"severity":"warning"`, `"secret_stored":true`, `"sent":0`)
	if test := ask(admin, "POST", path+"/ops/test", ""); test.Code != 200 || got == nil || !strings.HasPrefix(got.Header.Get("webhook-signature"), "v1,") {
		t.Errorf("test: %d %s, the receiver got %v", test.Code, test.Body, got)
	}
	if r := read(path, 200, `"tried":"`); strings.Contains(r, `"error"`) {
		t.Errorf("after a test that went well: %s", r)
	}
	status = http.StatusTeapot
	if test := ask(admin, "POST", path+"/ops/test", ""); test.Code != 502 || !strings.Contains(test.Body.String(), "418") {
		t.Errorf("a test that is refused: %d %s", test.Code, test.Body)
	}
	read(path+"/ops", 200, "418")

	// The secret stays with a document that says so, and goes with one that does not.
	put("ops", `{"kind":"webhook","url":"`+receiver.URL+`","rate":5,"secret_stored":true}`, 204)
	status, got = http.StatusNoContent, nil
	if test := ask(admin, "POST", path+"/ops/test", ""); test.Code != 200 || got.Header.Get("webhook-signature") == "" {
		t.Errorf("the secret is lost by a change: %d %s", test.Code, test.Body)
	}
	// A secret goes to the address that it was given for, whoever changes the address, and however.
	for _, elsewhere := range []string{`{"kind":"webhook","url":"` + receiver.URL + `/elsewhere","secret_stored":true}`, `{"kind":"webhook","url":"` + receiver.URL + `/{secret}","secret_stored":true}`,
		`{"kind":"email","server":"smtps://mail","from":"a@b.c","to":["d@e.f"],"username":"u","secret_stored":true}`} {
		put("ops", elsewhere, 400, "secret_stored", "was given for another address: give it again")
		before := w.Documents[alerts.ChannelPrefix+"ops"]
		w.Documents[alerts.ChannelPrefix+"ops"] = []byte(elsewhere)
		if test := ask(admin, "POST", path+"/ops/test", ""); test.Code != 502 || !strings.Contains(test.Body.String(), "was given for another address") {
			t.Errorf("%s: %d %s", elsewhere, test.Code, test.Body)
		}
		w.Documents[alerts.ChannelPrefix+"ops"] = before
	}
	put("ops", `{"kind":"webhook","url":"`+receiver.URL+`"}`, 204)
	if _, kept := w.Documents[alerts.SecretPrefix+"ops"]; kept {
		t.Error("a secret that no channel uses is kept")
	}
	put("ops", `{"kind":"webhook","url":"`+receiver.URL+`","secret_stored":true}`, 400, "secret_stored", "give it as secret")

	for body, says := range map[string]string{
		`{"kind":"pigeon"}`: "kind", `{"kind":"webhook","url":"ftp://x"}`: "url: want https", `{"kind":"webhook"}`: "url: want https",
		`{"kind":"webhook","url":"https://x","secret":"short"}`:                         "secret: ",
		`{"kind":"webhook","url":"https://x","secret":""}`:                              "secret: ",
		`{"kind":"webhook","url":"https://x","secret_file":"a","secret":"` + key + `"}`: "want one of them",
		`{"kind":"webhook","url":"https://x","token":"t"}`:                              "token",
		`{"kind":"webhook","url":"https://x","rate":1000}`:                              "rate: 1000",
		`{"url":"https://x"}`: "kind",
		`{"kind":"email","server":"smtps://mail","from":"a@b.c","to":["d@e.f"],"secret":"` + key + `"}`: "username",
	} {
		put("bad", body, 400, says)
	}
	put("a%20b", `{"kind":"webhook","url":"https://x"}`, 400)
	read(path+"/none", 404, "no channel")
	if code := ask(admin, "POST", path+"/none/test", "").Code; code != 404 {
		t.Errorf("test of no channel: %d", code)
	}
	put("mail", `{"kind":"email","server":"smtps://mail","from":"a@b.c","to":["d@e.f"],"username":"u","secret":"open sesame"}`, 204)
	if code := ask(admin, "DELETE", path+"/mail", "").Code; code != 204 {
		t.Errorf("delete: %d", code)
	}
	if len(w.Documents) != 1 {
		t.Errorf("left are %v", w.Documents)
	}
	for name := range w.Documents {
		if name != alerts.ChannelPrefix+"ops" {
			t.Errorf("left is %s", name)
		}
	}
	for len(w.Documents) < alerts.ChannelsMax {
		w.Documents[alerts.ChannelPrefix+"c"+strings.Repeat("x", len(w.Documents))] = []byte(`{}`)
	}
	put("more", `{"kind":"webhook","url":"https://x"}`, 409, "the limit")
	read(path, 200, `"error":"channel c`)

	var trail strings.Builder
	for _, e := range w.Trail {
		trail.WriteString(e.Action + " " + e.Target + " " + string(e.Before) + " " + string(e.After) + " " + e.Outcome + "\n")
	}
	for _, secret := range []string{key, "open sesame"} {
		if strings.Contains(trail.String(), secret) || strings.Contains(all, secret) {
			t.Errorf("%s is in an answer or in the audit trail:\n%s", secret, trail.String())
		}
	}
	for _, line := range []string{`channel.put channel/ops  {`, `"secret":"given"} done`, `alert.test channel/ops   done`, `alert.test channel/ops   refused: `, `channel.delete channel/mail {`, `channel.put channel/bad  {`} {
		if !strings.Contains(trail.String(), line) {
			t.Errorf("the trail has no %q:\n%s", line, trail.String())
		}
	}
	w.Sender = nil
	if answer := ask(admin, "POST", path+"/ops/test", ""); answer.Code != 503 || !strings.Contains(answer.Body.String(), "role supervisor") {
		t.Errorf("where nothing is delivered: %d %s", answer.Code, answer.Body)
	}
	_, bare := world(t, func(c *api.Config) { c.Ports.Level = nil })
	if code := ask(apitest.As(operate.RoleAdmin, bare), "GET", "/v1/log-level", "").Code; code != 503 {
		t.Errorf("a level where there is none: %d", code)
	}
}

// TestLogLevel: the level of the log changes while the node runs, is noted, and a wrong one changes nothing.
//
// covers: OP16, OP17
func TestLogLevel(t *testing.T) {
	w, handler := world(t, nil)
	admin := apitest.As(operate.RoleAdmin, handler)
	if answer := ask(admin, "GET", "/v1/log-level", ""); answer.Code != 200 || !strings.Contains(answer.Body.String(), `"level":"info"`) {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if answer := ask(admin, "PUT", "/v1/log-level", `{"level":"debug"}`); answer.Code != 200 || !strings.Contains(answer.Body.String(), `"level":"debug"`) || w.Level.Level() != slog.LevelDebug {
		t.Errorf("%d %s, level %v", answer.Code, answer.Body, w.Level.Level())
	}
	if e := w.Trail[len(w.Trail)-1]; e.Action != "log.level" || string(e.Before) != `{"level":"info"}` || string(e.After) != `{"level":"debug"}` || e.Outcome != "done" {
		t.Errorf("the trail has %+v", e)
	}
	for _, bad := range []string{``, `{}`, `{"level":"loud"}`, `{"level":"INFO+2"}`, `{"levels":"info"}`} {
		if answer := ask(admin, "PUT", "/v1/log-level", bad); answer.Code != 400 {
			t.Errorf("%q: %d %s", bad, answer.Code, answer.Body)
		}
	}
	w.Lock()
	w.Err = errors.New("database away")
	w.Unlock()
	if answer := ask(admin, "PUT", "/v1/log-level", `{"level":"error"}`); answer.Code != 503 || w.Level.Level() != slog.LevelDebug {
		t.Errorf("without a trail: %d, level %v", answer.Code, w.Level.Level())
	}
}
