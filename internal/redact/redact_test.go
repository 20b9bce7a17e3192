package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

// covers: C12
func TestSecretsAreHidden(t *testing.T) {
	const s = "s3cret"
	for in, want := range map[string]string{
		"postgres://app:s3cret@db:5432/duly":                                     "postgres://app:xxxxx@db:5432/duly",
		"postgresql://app:s3cret@a:1,b:2/duly?sslmode=require":                   "postgresql://app:xxxxx@a:1,b:2/duly?sslmode=require",
		"postgres://db/duly?user=app&password=s3cret&sslmode=allow":              "postgres://db/duly?user=app&password=xxxxx&sslmode=allow",
		"postgres://app:s3cret%40x@db/duly":                                      "postgres://app:xxxxx@db/duly",
		"postgres://app:x@s3cret@db/duly":                                        "postgres://app:xxxxx@db/duly",
		"postgres://app:s3cret/x@db/duly":                                        "postgres://app:xxxxx@db/duly",
		"host=db user=app password=s3cret dbname=duly":                           "host=db user=app password=xxxxx dbname=duly",
		"host=db password='s3cret with \\' more' user=app":                       "host=db password='xxxxx' user=app",
		"host=db PASSWORD = s3cret sslpassword=s3cret":                           "host=db PASSWORD = xxxxx sslpassword=xxxxx",
		"user=app password=s3cret:x@y host=db":                                   "",
		"nats://app:s3cret@n1:4222":                                              "nats://app:xxxxx@n1:4222",
		"nats://s3cret@n1:4222":                                                  "nats://xxxxx@n1:4222",
		"tls://s3cret@n1:4222":                                                   "tls://xxxxx@n1:4222",
		"nats://a:s3cret@n1:4222,nats://b:s3cret@n2":                             "nats://a:xxxxx@n1:4222,nats://b:xxxxx@n2",
		"nats://a:s3cret@n1:4222, nats://b:s3cret@n2":                            "nats://a:xxxxx@n1:4222, nats://b:xxxxx@n2",
		"nats://a:s3cret@n1,b:s3cret@n2":                                         "nats://a:xxxxx@n2",
		"nats://a:s3,cret,s3cret@n1,nats://b:s3cret@n2":                          "nats://a:xxxxx@n1,nats://b:xxxxx@n2",
		"app:s3cret@n1:4222":                                                     "app:xxxxx@n1:4222",
		"app:s3cret@n1:4222,b:s3cret@n2":                                         "app:xxxxx@n2",
		"wss://app:s3cret@n1/path":                                               "wss://app:xxxxx@n1/path",
		`parse "nats://app:s3cret x@n1": invalid character " " in host name`:     `parse "nats://app:xxxxx@n1": invalid character " " in host name`,
		"cannot parse `postgres://app:s3cret@db:x/duly`: failed":                 "cannot parse `postgres://app:xxxxx@db:x/duly`: failed",
		`connect to nats at app:s3cret@n1: no servers available`:                 `connect to nats at app:xxxxx@n1: no servers available`,
		`{"url":"n1","password":"s3cret","token": "s3cret"}`:                     `{"url":"n1","password":"xxxxx","token": "xxxxx"}`,
		`dial "{\"password\":\"s3cret\", \"user\": \"a\"}"`:                      `dial "{\"password\":\"xxxxx\", \"user\": \"a\"}"`,
		"https://app:s3cret@host/x?token=s3cret#y":                               "https://app:xxxxx@host/x?token=xxxxx",
		"error: token=s3cret; pwd=s3cret, auth_token=s3cret":                     "error: token=xxxxx; pwd=xxxxx, auth_token=xxxxx",
		"seed SUAM" + strings.Repeat("A2", 26) + " and eyJhbGci.eyJzdWIi.s3cret": "seed xxxxx and xxxxx",
		"no token duly_abcdefghijklmnop_s3cretAAAAAAAAAAAA-_AAAA of it":          "no token duly_abcdefghijklmnop_xxxxx of it",
	} {
		got := Text(in)
		if strings.Contains(got, s) || strings.Contains(got, "SUAM") {
			t.Errorf("%s: shown in %s", in, got)
		}
		if want != "" && !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		if again := Text(got); again != got {
			t.Errorf("%s is not stable: %s", got, again)
		}
	}
}

// What is no secret stays to be read.
func TestOtherTextsStay(t *testing.T) {
	for _, text := range []string{
		"", "the database is away", "nats://127.0.0.1:4222", "nats://n1:4222,nats://n2:4222", "postgres://app@db:5432/duly?sslmode=disable", "[::1]:4222",
		"task order-17 of type order: input has 262145 bytes, the limit is 262144 (413)", "dial tcp 127.0.0.1:4222: connect: connection refused",
		"FATAL: password authentication failed for user \"app\" (SQLSTATE 28P01)", "stream DULY_TASKS: 12:30:05 UTC", "write to ops@example.org", "sqlite:/var/lib/duly/duly.db",
		"the token is not understood", "http://127.0.0.1:7310/v1/tasks?type=order&limit=5",
	} {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestError(t *testing.T) {
	if Error(nil) != nil {
		t.Error("nil became an error")
	}
	if err := Error(io.EOF); err != io.EOF {
		t.Errorf("an error without a secret became %v", err)
	}
	err := Error(fmt.Errorf("connect: %w", &url.Error{Op: "parse", URL: "nats://a:s3cret@h", Err: io.EOF}))
	if !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

func TestHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))).With("at", "nats://a:s3cret@h")
	log.WithGroup("g").Info("u:s3cret@host", "error", errors.New("postgres://a:s3cret@h"), "n", 7, "urls", []string{"nats://s3cret@h"},
		slog.Group("sub", "dsn", "password=s3cret"), "url", &url.URL{Scheme: "nats", User: url.UserPassword("a", "s3cret"), Host: "h"})
	log.Debug("not told")
	text := out.String()
	if strings.Contains(text, "s3cret") || strings.Count(text, "xxxxx") != 6 || !strings.Contains(text, "g.n=7") || strings.Contains(text, "not told") {
		t.Errorf("got %s", text)
	}
}

// The secrets of a configuration are hidden also where nothing tells what they are.
//
// covers: C12
func TestKnownSecretsAreHidden(t *testing.T) {
	for address, secret := range map[string]string{
		"postgres://app:hunter2!@db/duly":                           "hunter2!",
		"postgres://app:a%40b%2Fcdef@db/duly":                       "a@b/cdef",
		"postgres://db/duly?user=app&password=open+sesame&x=1":      "open sesame",
		"host=db user=app password='open sesame' dbname=duly":       "open sesame",
		"host=db password=sesame1 user=app":                         "sesame1",
		"nats://app:sesame1@n1:4222,nats://app:sesame2@n2:4222":     "sesame2",
		"nats://tokentoken@n1:4222":                                 "tokentoken",
		"postgres://app:longer-longer@db/duly?sslpassword=longer":   "longer-longer",
		"postgres://app:hunter2!@db/duly,nats://x:other-one@n1:422": "other-one",
	} {
		s := SecretsOf(address)
		text := "the server says: no " + secret + " here, nor (" + url.QueryEscape(secret) + ")"
		if got := s.Text(text); strings.Contains(got, secret) || strings.Contains(got, url.QueryEscape(secret)) || got != "the server says: no xxxxx here, nor (xxxxx)" {
			t.Errorf("%s: got %s", address, got)
		}
		err := fmt.Errorf("wrapped: %w", io.EOF)
		if clean := s.Error(fmt.Errorf("%w: %s", err, secret)); strings.Contains(clean.Error(), secret) || !errors.Is(clean, io.EOF) {
			t.Errorf("%s: %v", address, clean)
		}
		var out bytes.Buffer
		slog.New(s.Handler(slog.NewTextHandler(&out, nil))).With("a", secret).WithGroup("g").Info(secret, "b", []string{secret}, "c", errors.New(secret), slog.Group("h", "d", secret))
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s: logged %s", address, &out)
		}
	}
	// A short one, and a user's or a host's name, are no secrets to look for.
	if got := SecretsOf("postgres://postgres:pw@postgres/postgres").Text("pw of postgres"); got != "pw of postgres" {
		t.Error(got)
	}
}

// Who cuts a text before it is cleaned leaves the begin of a secret, and a service repeats one shortened: a piece of half
// the secret is hidden as well.
//
// covers: P13
func TestPiecesOfSecretsAreHidden(t *testing.T) {
	const secret = "zq81-kd93-mm42-tt77-bb06"
	s := SecretsOf("postgres://app:" + secret + "@db/duly")
	for cut := 12; cut <= len(secret); cut++ {
		for _, piece := range []string{secret[:cut], secret[len(secret)-cut:]} {
			if got := s.Text("it says: " + piece); got != "it says: xxxxx" {
				t.Errorf("%s: %s", piece, got)
			}
		}
	}
	if got := s.Text("m42-tt7 is a piece that tells little"); !strings.HasPrefix(got, "m42-tt7 ") {
		t.Error(got)
	}
	// Nothing is known of this one, but its user is followed by what is no port.
	for in, want := range map[string]string{"connect to postgres://app:s3cr": "connect to postgres://app:xxxxx", "nats://[::1]:42": "nats://[::1]:42", "nats://n1:4222": "nats://n1:4222",
		"http://h/a:b": "http://h/a:b", `"nats://n1:4222": no`: `"nats://n1:4222": no`} {
		if got := Text(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	// A quote or a backslash is written otherwise within JSON.
	if got := Of(`a"b\c`).Text(`{"said":"a\"b\\c"}`); strings.Contains(got, "c") && !strings.Contains(got, "xxxxx") {
		t.Error(got)
	}
}
