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
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key}
}

// pem is the authority as a file has it.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// sign makes a certificate for both sides of TLS on loopback.
func (a *authority) sign(subject pkix.Name, uri string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// save writes a certificate and its key.
func save(t *testing.T, c tls.Certificate, certFile, keyFile string) {
	t.Helper()
	secret, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClientCertificates: who shows a certificate of the authority is its subject, with the role that the settings give; a
// certificate of another authority ends the handshake, one without a role is refused, and none is no hindrance. Another
// authority in the file counts from then on, and a broken file changes nothing.
//
// covers: OP17, P12
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first, second, server := newAuthority(t, "first"), newAuthority(t, "second"), newAuthority(t, "server")
	save(t, server.sign(pkix.Name{CommonName: "duly"}, ""), certFile, keyFile)
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(caFile, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first.pem())
	n := &Node{log: slog.New(slog.DiscardHandler), cfg: config.Config{HTTP: config.HTTP{TLSCert: certFile, TLSKey: keyFile, ClientCA: caFile}}}
	secure, err := n.tlsConfig()
	if err != nil {
		t.Fatal(err)
	}
	// The same with a clock of the test's.
	var passed atomic.Int64
	var told []error
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	ca, err := newClientCAs(caFile, now, func(err error) { told = append(told, err) })
	if err != nil {
		t.Fatal(err)
	}
	ca.ask(secure)
	a, err := auth.New(auth.Config{Mode: auth.Token, Tokens: apitest.New(), Log: n.log, Certificates: auth.Certificates{
		operate.RoleViewer: {"vera", "O=shop"}, operate.RoleOperator: {"spiffe://shop/orders", "OU=night"}, operate.RoleAdmin: {"ada"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(a.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, _ := operate.ActorFrom(r.Context())
		_, _ = io.WriteString(w, actor.Name+" "+string(actor.Role))
	})))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.TLS = secure
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.cert)
	ask := func(certs ...tls.Certificate) string {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs, MinVersion: tls.VersionTLS12}}
		// Whatever authorities the server names, this one is shown.
		if len(certs) > 0 {
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
		}
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err != nil {
			return "handshake"
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 {
			return resp.Status[:3]
		}
		return string(text)
	}
	named := func(a *authority, name string) tls.Certificate { return a.sign(pkix.Name{CommonName: name}, "") }
	for _, x := range []struct {
		name string
		cert []tls.Certificate
		want string
	}{
		{"none", nil, " "},
		{"a name", []tls.Certificate{named(first, "ada")}, "ada admin"},
		{"of another authority", []tls.Certificate{named(second, "ada")}, "handshake"},
		{"no role", []tls.Certificate{named(first, "eve")}, "403"},
		{"a URI goes before the name", []tls.Certificate{first.sign(pkix.Name{CommonName: "ada"}, "spiffe://shop/orders")}, "spiffe://shop/orders operator"},
		{"a URI without a role", []tls.Certificate{first.sign(pkix.Name{CommonName: "ada"}, "spiffe://shop/other")}, "403"},
		{"an organisation", []tls.Certificate{first.sign(pkix.Name{CommonName: "x", Organization: []string{"shop"}}, "")}, "x viewer"},
		{"the highest of two", []tls.Certificate{first.sign(pkix.Name{CommonName: "vera", OrganizationalUnit: []string{"night"}}, "")}, "vera operator"},
		{"an organisation's value as the name", []tls.Certificate{named(first, "shop")}, "403"},
		{"a name with the prefix of an organisation", []tls.Certificate{named(first, "O=shop")}, "403"},
		{"a name with the prefix of a unit", []tls.Certificate{named(first, "OU=night")}, "403"},
		{"a name that is another's URI", []tls.Certificate{named(first, "spiffe://shop/orders")}, "403"},
		{"a name that is another's URI, in an organisation", []tls.Certificate{first.sign(pkix.Name{CommonName: "spiffe://shop/orders", Organization: []string{"shop"}}, "")}, "403"},
		{"an organisation with the prefix of a unit", []tls.Certificate{first.sign(pkix.Name{CommonName: "x", Organization: []string{"OU=night"}}, "")}, "403"},
		{"a URI that looks like a name", []tls.Certificate{first.sign(pkix.Name{CommonName: "x"}, "ada")}, "403"},
	} {
		if got := ask(x.cert...); got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
	write(second.pem())
	passed.Add(int64(certificateLook))
	if got := ask(named(second, "ada")); got != "ada admin" {
		t.Errorf("of the new authority: %q", got)
	}
	if got := ask(named(first, "ada")); got != "handshake" {
		t.Errorf("of an authority that is gone: %q", got)
	}
	write([]byte("no certificate"))
	passed.Add(int64(certificateLook))
	if got := ask(named(second, "ada")); got != "ada admin" || len(told) != 1 || !strings.Contains(told[0].Error(), caFile) {
		t.Errorf("with a broken file: %q, told %v", got, told)
	}
	for _, cfg := range []config.HTTP{{TLSCert: certFile, TLSKey: keyFile, ClientCA: caFile}, {TLSCert: certFile, TLSKey: keyFile, ClientCA: caFile + "x"}} {
		if _, err := (&Node{log: n.log, cfg: config.Config{HTTP: cfg}}).tlsConfig(); err == nil || !strings.Contains(err.Error(), "http-client-ca") {
			t.Errorf("%s at the start: %v", cfg.ClientCA, err)
		}
	}
	if _, err := newClientCAs(caFile+"x", time.Now, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestRetentionIsTheSchedulers: what is kept, and how long, is what the settings say.
func TestRetentionIsTheSchedulers(t *testing.T) {
	n := &Node{cfg: config.Config{RetainDetail: time.Hour, RetainRow: 2 * time.Hour, RetainAudit: 3 * time.Hour}}
	if got := n.schedulerConfig().Retain; got.Detail != time.Hour || got.Row != 2*time.Hour || got.Audit != 3*time.Hour {
		t.Errorf("retention %+v", got)
	}
}

// TestSharesAreTheSchedulers: weights and the label of tenants are what the settings say, at the door too.
func TestSharesAreTheSchedulers(t *testing.T) {
	n := &Node{cfg: config.Config{Fair: config.Fair{TenantLabel: "customer", Weights: []string{"class:low=2", "type:order=3", "tenant:acme=4"}}}}
	got := n.schedulerConfig()
	if got.TenantLabel != "customer" || got.Weights.Classes[core.ClassLow] != 2 || got.Weights.Types["order"] != 3 || got.Weights.Tenants["acme"] != 4 {
		t.Errorf("label %s, weights %+v", got.TenantLabel, got.Weights)
	}
	if door := n.doorConfig(nil); door.TenantLabel != "customer" || door.Weights["acme"] != 4 {
		t.Errorf("at the door: label %s, weights %+v", door.TenantLabel, door.Weights)
	}
}
