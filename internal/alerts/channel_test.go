package alerts

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
)

// TestChannelIsChecked: a channel that cannot work is refused with the field that is wrong.
func TestChannelIsChecked(t *testing.T) {
	hook := map[string]any{"kind": "webhook", "url": "https://example.org/hook"}
	mail := map[string]any{"kind": "email", "server": "smtp://mail.example.org", "from": "duly@example.org", "to": []string{"ops@example.org"}}
	for _, good := range []map[string]any{hook, mail} {
		document, _ := json.Marshal(good)
		if _, err := parseChannel("ops", document); err != nil {
			t.Errorf("%s: %v", document, err)
		}
	}
	for _, bad := range []struct {
		of    map[string]any
		field string
		value any
		want  string
	}{
		{hook, "kind", "pigeon", "kind:"},
		{hook, "url", "example.org", "url:"},
		{hook, "url", "ftp://example.org/", "url:"},
		{hook, "url", "https://user:pass@example.org/", "url: it has a user"},
		{hook, "url", "https://{secret}.example.org/", "url:"},
		{hook, "url", "https://example.org/{secret}", "url: it has {secret}"},
		{hook, "rate", 601, "rate: 601"},
		{hook, "rate", -1, "rate: -1"},
		{hook, "severity", "loud", "severity:"},
		{hook, "alerts", []string{"a b"}, "alerts"},
		{hook, "alerts", make([]string, namesMax+1), "alerts: 65 names"},
		{hook, "headers", map[string]string{"authorization": "x"}, "headers:"},
		{hook, "headers", map[string]string{"Webhook-Id": "x"}, "headers:"},
		{hook, "headers", map[string]string{"X Y": "x"}, "headers:"},
		{hook, "headers", map[string]string{"X": "a\r\nB: c"}, "headers:"},
		{hook, "body", "{{.Text", "body:"},
		{hook, "body", `{"text":"{{.Text}}"}`, "does not make JSON"},
		{hook, "body", `{{.Nothing}}`, "body:"},
		{hook, "body", strings.Repeat("x", templateBytesMax+1), "body: 8193 bytes"},
		{hook, "body", `{{range $i, $e := .Name}}{{end}}`, "body:"},
		{hook, "secret_file", "../passwd", "secret_file:"},
		{hook, "secret_file", "/etc/passwd", "secret_file:"},
		{hook, "secret_file", ".x", "secret_file:"},
		{hook, "secret_env", "DATABASE_URL", "secret_env:"},
		{hook, "to", []string{"ops@example.org"}, "they are for kind email"},
		{hook, "secret", "whsec_x", "unknown field"},
		{mail, "server", "mail.example.org:25", "server:"},
		{mail, "server", "http://mail.example.org", "server:"},
		{mail, "server", "smtp://u:p@mail.example.org", "server: it has a user"},
		{mail, "username", "duly", "username:"},
		{mail, "from", "nobody", "from:"},
		{mail, "from", "a@b.c\r\nBcc: x@y.z", "from:"},
		{mail, "to", []string{}, "to: 0 addresses"},
		{mail, "to", make([]string, recipientsMax+1), "to: 51 addresses"},
		{mail, "to", []string{"x"}, "to:"},
		{mail, "url", "https://example.org", "they are for kind webhook"},
		{mail, "subject", "{{", "subject:"},
	} {
		c := maps.Clone(bad.of)
		c[bad.field] = bad.value
		document, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseChannel("ops", document); err == nil || !strings.Contains(err.Error(), bad.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %s of %.60v: %v, want %q", bad.of["kind"], bad.field, bad.value, err, bad.want)
		}
	}
	document, _ := json.Marshal(hook)
	for _, name := range []string{"", "a/b", strings.Repeat("n", 65)} {
		if _, err := parseChannel(name, document); err == nil {
			t.Errorf("the name %q is taken", name)
		}
	}
	if _, err := parseChannel("ops", make([]byte, channelBytesMax+1)); err == nil {
		t.Error("a document of any size is taken")
	}
}

// TestSecretsStayInTheirFolder: a channel reads a file of the folder of secrets and no other, also through a link.
func TestSecretsStayInTheirFolder(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for file, text := range map[string]string{filepath.Join(dir, "good"): " value \n", filepath.Join(dir, "empty"): "\n", outside: "secret",
		filepath.Join(dir, "large"): strings.Repeat("x", secretBytesMax+1)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"good": "value", "empty": "", "link": "", "none": "", "large": ""} {
		got, err := (&Channel{SecretFile: name}).secret(dir)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	t.Setenv("DULY_ALERT_X", "from the environment")
	if got, err := (&Channel{SecretEnv: "DULY_ALERT_X"}).secret(dir); err != nil || got != "from the environment" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := (&Channel{SecretEnv: "DULY_ALERT_NONE"}).secret(dir); err == nil {
		t.Error("a variable that is not set is a secret")
	}
	for _, bad := range []string{"whsec_%%%", "whsec_c2hvcnQ=", strings.Repeat("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n", 3)} {
		if _, err := signingKeys(bad); err == nil {
			t.Errorf("signing secret %q is taken", bad)
		}
	}
	if keys, err := signingKeys("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\nMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="); err != nil || len(keys) != 2 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// TestAddressesThatAreRefused: no channel leads to this machine, to its neighbours or to a metadata service, however the
// address is written.
//
// covers: P19
func TestAddressesThatAreRefused(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "169.254.169.254", "fe80::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
		"64:ff9b::a9fe:a9fe", "224.0.0.1", "ff02::1", "255.255.255.255", "fd00:ec2::254", "0.1.2.3", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd20:ce::254",
		"2002:7f00:1::1", "2002:a9fe:a9fe::1", "2001:0:7f00:1::1", "2001:db8::1", "64:ff9b::a83f:8110", "::7f00:1", "::ffff:100.100.100.200", "240.0.0.1", "192.88.99.1"} {
		if !refused(netip.MustParseAddr(address)) {
			t.Errorf("%s is dialled", address)
		}
	}
	for _, address := range []string{"10.0.0.1", "192.168.1.1", "93.184.216.34", "100.64.0.1", "2606:2800:220:1::1", "fd00::1", "64:ff9b::a00:1"} {
		if refused(netip.MustParseAddr(address)) {
			t.Errorf("%s is refused", address)
		}
	}
	r := newReceiver(t, nil)
	store := newSettings()
	store.channel(t, "ops", map[string]any{"kind": "webhook", "url": strings.Replace(r.URL, "127.0.0.1", "localhost", 1)})
	store.channel(t, "post", map[string]any{"kind": "email", "server": "smtp+plain://localhost:" + r.URL[strings.LastIndexByte(r.URL, ':')+1:], "from": "a@b.c", "to": []string{"d@e.f"}})
	s, err := New(Config{Store: store, Source: newStream(), Leads: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ops", "post"} {
		if err := s.Test(t.Context(), name); !errors.Is(err, errLocal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.quiet(t)
	s.client.CloseIdleConnections()
}

// TestRedirects: a redirect on the receiver's own host is followed with the alert, one to another host is not.
func TestRedirects(t *testing.T) {
	other := newReceiver(t, nil)
	r := newReceiver(t, func(_ int64, w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/there":
			w.WriteHeader(http.StatusNoContent)
		case "/around":
			http.Redirect(w, req, "/around", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, req, other.URL, http.StatusTemporaryRedirect)
		case "/get":
			http.Redirect(w, req, "/there", http.StatusFound)
		default:
			http.Redirect(w, req, "/there", http.StatusPermanentRedirect)
		}
	})
	store := newSettings()
	s, _ := starts(t, Config{Store: store, Source: newStream(), Leads: func() bool { return false }})
	for path, well := range map[string]bool{"": true, "/around": false, "/away": false, "/get": false} {
		store.channel(t, "ops", map[string]any{"kind": "webhook", "url": r.URL + path})
		err := s.Test(t.Context(), "ops")
		if (err == nil) != well {
			t.Errorf("%q: %v", path, err)
		}
		var final finalError
		if !well && !errors.As(errors.Unwrap(err), &final) && !strings.Contains(err.Error(), "redirects") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if n := other.seen.Load(); n != 0 {
		t.Errorf("another host got %d alerts", n)
	}
}

// TestMailTexts: the texts of a mail say what there is to say, in the channel's own words where it has them.
func TestMailTexts(t *testing.T) {
	a := begins("n1", "streams", "TASKS", true)
	a.Times, a.LastsMS, a.Attrs = 3, 12_000, []core.AlertAttr{{Name: "task", Value: "t-1"}}
	c := Channel{Kind: kindEmail, Server: "smtp://h", From: "duly@example.org", To: []string{"ops@example.org"}}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	v := viewOf(&a, "prod")
	subject, err := render(c.templates.subject, v)
	if err != nil || string(subject) != "[prod] streams begins (TASKS)" {
		t.Errorf("%q, %v", subject, err)
	}
	text, err := render(c.templates.text, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"streams begins (TASKS)\n", "why\n", "node      n1", "since     1970-01-01 00:00:01 UTC, 12s", "times     3", "task      t-1", "id        b-streamsTASKSn1"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	c.Subject, c.Text = "{{.Phase}}\n{{.Name}}", "{{range $k, $v := .More}}{{$k}}={{$v}}{{end}}"
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	s := &Sender{cfg: Config{Namespace: "prod"}}
	m, err := s.compose(&c, &a)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Subject: begin streams\r\n", "task=3Dt-1", "Message-ID: <b-streamsTASKSn1@prod.duly>", "Auto-Submitted: auto-generated"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
