package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrivateAuthority: a node whose certificate is of an authority that the machine does not know is asked with --ca, and
// one that wants a certificate is shown that of --cert.
func TestPrivateAuthority(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range []string{"DULY_CA", "DULY_CERT", "DULY_CERT_KEY", "DULY_TOKEN", "DULY_PROFILE"} {
		t.Setenv(name, "")
	}
	cert, ca := certificate(t)
	shown := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = len(r.TLS.PeerCertificates)
		if r.URL.Path != "/readyz" {
			_, _ = w.Write([]byte(`{"tokens":[]}`))
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args  []string
		code  int
		says  string
		shown int
	}{
		{[]string{"health"}, exitFailed, "certificate", 0},
		{[]string{"health", "--ca", ca}, exitDone, "ready", 0},
		{[]string{"health", "--ca", ca, "--cert", ca, "--cert-key", keyFile}, exitDone, "ready", 1},
		{[]string{"token", "list", "--ca", ca, "--cert", ca, "--cert-key", keyFile}, exitDone, "", 1},
		{[]string{"token", "list"}, exitUnreachable, "certificate", 1},
		{[]string{"health", "--ca", ca + "x"}, exitUse, "ca: ", 1},
		{[]string{"health", "--ca", keyFile}, exitUse, "no certificate in PEM", 1},
		{[]string{"health", "--cert", ca}, exitUse, "go together", 1},
		{[]string{"health", "--cert", ca, "--cert-key", ca}, exitUse, "cert: ", 1},
	} {
		code, out, errs := command(t, "", append(x.args, "-s", s.URL)...)
		if code != x.code || !strings.Contains(out+errs, x.says) || shown != x.shown {
			t.Errorf("duly %v: exit %d, want %d: %s%s, %d certificates shown", x.args, code, x.code, out, errs, shown)
		}
	}
}
