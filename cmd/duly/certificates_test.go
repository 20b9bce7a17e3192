package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/pgtestdb"
)

// TestServeWithCertificates: two nodes that show NATS a certificate serve HTTPS to who shows one, too. What an admin asks
// by it is carried out under its name; a person who signs in at one node is known at the other, until they sign out.
//
// covers: OP16, OP17, P10
func TestServeWithCertificates(t *testing.T) {
	for _, name := range []string{"NATS_URL", "NATS_CONTEXT", "NATS_CREDS", "DULY_TOKEN", "DULY_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	cert, ca := certificate(t) // it is authority, server and client in one
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	server := natsServer(t, natsd.Options{TLS: true, TLSVerify: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}})
	database := pgtestdb.Installation(t)
	if err := node.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DULY_CA", ca)
	var urls []string
	for _, name := range []string{"one", "two"} {
		n := start(t, "serve", "--node-name", name, "--nats-url", "tls://"+server.Addr().String(), "--nats-ca", ca, "--nats-cert", ca, "--nats-key", keyFile, "--database-url", database,
			"--http-addr", "127.0.0.1:0", "--partitions", "2", "--stream-max-bytes", "1000000", "--auth", "token", "--http-tls-cert", ca, "--http-tls-key", keyFile,
			"--http-client-ca", ca, "--http-cert-admins", "duly test")
		at := strings.Replace(n.up(), "http://", "https://", 1)
		until(t, name+" is ready", func() bool { code, _, _ := command(t, "", "health", "-s", at); return code == 0 })
		urls = append(urls, at)
	}
	// A person with a token has no certificate.
	code, out, errs := command(t, "", "token", "create", "olga", "--role", "viewer", "--reason", "test", "--database-url", database, "-o", "json")
	var made struct{ Secret string }
	if err := json.Unmarshal([]byte(out), &made); code != 0 || err != nil || made.Secret == "" {
		t.Fatalf("token: exit %d, %v: %s%s", code, err, out, errs)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := func(certs ...tls.Certificate) *http.Transport {
		return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12}}
	}
	person := &http.Client{Jar: jar, Timeout: patience, Transport: transport()}
	admin := &http.Client{Timeout: patience, Transport: transport(cert)}
	ask := func(c *http.Client, method, address, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if strings.Contains(body, "token=") {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	if code, _ := ask(person, "GET", urls[0]+"/v1/plans", ""); code != 401 {
		t.Errorf("without anything: %d", code)
	}
	if code, said := ask(admin, "PUT", urls[0]+"/v1/log-level", `{"level":"debug"}`); code != 200 {
		t.Errorf("log level by certificate: %d %s", code, said)
	}
	if code, said := ask(admin, "GET", urls[1]+"/v1/log-level", ""); code != 200 || !strings.Contains(said, `"info"`) {
		t.Errorf("log level of the other node: %d %s", code, said)
	}
	if code, said := ask(admin, "PUT", urls[0]+"/v1/settings/alerts/ops", `{"kind":"webhook","url":"https://127.0.0.1:1/x"}`); code != 204 {
		t.Errorf("channel: %d %s", code, said)
	}
	if code, said := ask(admin, "POST", urls[1]+"/v1/settings/alerts/ops/test", ""); code != 502 {
		t.Errorf("test of a channel to this machine: %d %s", code, said)
	}
	if code, said := ask(admin, "GET", urls[1]+"/v1/audit", ""); code != 200 || !strings.Contains(said, `"actor":"duly test","role":"admin"`) || !strings.Contains(said, "log.level") || !strings.Contains(said, "channel.put") {
		t.Errorf("audit: %d %s", code, said)
	}
	if code, said := ask(person, "POST", urls[0]+"/login", url.Values{"token": {made.Secret}, "next": {"/v1/plans"}}.Encode()); code != 200 {
		t.Fatalf("sign in: %d %s", code, said)
	}
	if code, said := ask(person, "GET", urls[1]+"/v1/plans", ""); code != 200 {
		t.Errorf("at the other node: %d %s", code, said)
	}
	for _, face := range []string{"/v1/audit", "/v1/audit?format=csv", "/v1/audit?format=ndjson", "/console/audit", "/console/settings"} {
		if code, said := ask(person, "GET", urls[1]+face, ""); code != 200 || !strings.Contains(said, "channel.put") && !strings.HasSuffix(face, "settings") || strings.Contains(said, "127.0.0.1:1/") || strings.Contains(said, "address refused") {
			t.Errorf("a viewer reads where a channel leads in %s: %d %s", face, code, said)
		}
	}
	first, err := url.Parse(urls[0])
	if err != nil {
		t.Fatal(err)
	}
	cookies := jar.Cookies(first)
	if code, _ := ask(person, "POST", urls[0]+"/logout", ""); code != 200 {
		t.Errorf("sign out: %d", code)
	}
	first.Path = "/"
	jar.SetCookies(first, cookies) // who kept the cookie
	began := time.Now()
	until(t, "signed out at the other node, too", func() bool { code, _ := ask(person, "GET", urls[1]+"/v1/plans", ""); return code == 401 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
}
