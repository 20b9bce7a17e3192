package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/config"
)

// writeCertificate writes a certificate of that name for loopback, and its key.
func writeCertificate(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCertificateIsReadAgain: a server of HTTPS shows the certificate that its files have now; files that are broken leave
// the one before, and are told.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, "first", certFile, keyFile)
	now := time.Now()
	var told []error
	c, err := newCertificate(certFile, keyFile, func() time.Time { return now }, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	shown := func() string {
		t.Helper()
		var name string
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			name = s.PeerCertificates[0].Subject.CommonName
			return nil
		}}}}
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return name
	}
	// The server of the library has a certificate of its own, which goes before a function.
	server.TLS.Certificates = nil
	if name := shown(); name != "first" {
		t.Fatalf("certificate %s", name)
	}
	writeCertificate(t, "second", certFile, keyFile)
	if name := shown(); name != "first" {
		t.Errorf("certificate %s at once: the files are not looked at for each connection", name)
	}
	now = now.Add(certificateLook)
	if name := shown(); name != "second" {
		t.Errorf("certificate %s after the files changed", name)
	}
	if err := os.WriteFile(keyFile, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(certificateLook)
	if name := shown(); name != "second" || len(told) != 1 || !strings.Contains(told[0].Error(), keyFile) {
		t.Errorf("certificate %s with a broken key, told %v", name, told)
	}
	if _, err := newCertificate(certFile, keyFile, time.Now, nil); err == nil {
		t.Error("a broken key is taken at the start")
	}
	if _, err := newCertificate(filepath.Join(dir, "none"), keyFile, time.Now, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestNodeRefusesToServeEveryone: what is listened at counts, and not only what the setting says.
//
// covers: OP17
func TestNodeRefusesToServeEveryone(t *testing.T) {
	for _, x := range []struct {
		loopback, insecure bool
		auth               string
		refused            bool
	}{
		{true, false, "", false}, {true, false, config.AuthOff, false}, {false, false, "", true}, {false, false, config.AuthOff, true}, {false, true, "", false},
		{false, false, config.AuthToken, false}, {false, false, config.AuthOIDC, false},
	} {
		n := &Node{cfg: config.Config{HTTP: config.HTTP{Auth: x.auth, Insecure: x.insecure}}}
		if err := n.checkOpen(x.loopback); (err != nil) != x.refused || err != nil && !strings.Contains(err.Error(), "--auth token") {
			t.Errorf("%+v: %v", x, err)
		}
	}
	cfg := config.Config{Roles: config.Roles, NodeName: "n", Partitions: 4, Shards: 1, InFlight: 1, AgentWindow: 1, StreamReplicas: 1,
		ScanInterval: time.Second, Lease: 6 * time.Second, Drain: time.Second, HTTPAddr: ":0"}
	if _, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http-addr: :0") {
		t.Errorf("a node with an address that is open to all: %v", err)
	}
}

// TestGuardNamedHosts: a name that a proxy passes on is served where it is named, and no other is.
//
// covers: OP20
func TestGuardNamedHosts(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for host, want := range map[string][2]int{ // on loopback, elsewhere
		"ops.example.org": {204, 204}, "OPS.example.org.:443": {204, 204}, "localhost": {204, 421}, "evil.example": {421, 421}, "ops.example.org.evil.example": {421, 421}, "": {204, 421},
	} {
		for i, loopback := range []bool{true, false} {
			r := httptest.NewRequest("GET", "/v1/tasks", nil)
			r.Host = host
			w := httptest.NewRecorder()
			guard(ok, loopback, true, []string{"Ops.example.org"}).ServeHTTP(w, r)
			if w.Code != want[i] {
				t.Errorf("host %q, loopback %v: %d, want %d", host, loopback, w.Code, want[i])
			}
		}
	}
	for _, x := range []struct {
		method, path, kind string
		want               int
	}{{"POST", "/v1/tasks", "application/x-ndjson", 204}, {"POST", "/v1/tasks", "application/json", 415}, {"POST", "/v1/tokens", "application/x-ndjson", 415}, {"PATCH", "/v1/operations/x", "text/plain", 415}, {"POST", "/login", "application/x-www-form-urlencoded", 204}} {
		r := httptest.NewRequest(x.method, x.path, nil)
		r.Header.Set("Content-Type", x.kind)
		w := httptest.NewRecorder()
		guard(ok, false, false, nil).ServeHTTP(w, r)
		if w.Code != x.want {
			t.Errorf("%s %s as %s: %d, want %d", x.method, x.path, x.kind, w.Code, x.want)
		}
	}
}
