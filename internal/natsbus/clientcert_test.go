package natsbus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// authority signs certificates of tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func pair(t *testing.T, template *x509.Certificate, by *authority) (*authority, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if by == nil {
		by = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a, _ := pair(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a *authority) sign(t *testing.T, name string) tls.Certificate {
	t.Helper()
	_, c := pair(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a)
	return c
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// TestClientCertificate: a connection shows its certificate to a server that asks for one, and believes the authority that
// it was given; without either there is none. When both sides' certificates have been changed, it connects again by the
// files as they are then.
func TestClientCertificate(t *testing.T) {
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(a *authority, c tls.Certificate) {
		t.Helper()
		secret, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{caFile: {Type: "CERTIFICATE", Bytes: a.cert.Raw}, certFile: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := t.TempDir()
	serve := func(a *authority, port int) *natsd.Server {
		t.Helper()
		s, err := natsd.NewServer(&natsd.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: store, TLS: true, TLSVerify: true, TLSTimeout: 5,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{a.sign(t, "server")}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("the server does not start")
		}
		return s
	}
	stop := func(s *natsd.Server) {
		s.Shutdown()
		s.WaitForShutdown()
	}
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	write(first, first.sign(t, "node"))
	s := serve(first, -1)
	defer func() { stop(s) }()
	url := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	o := Options{URL: url, CAFile: caFile, CertFile: certFile, KeyFile: keyFile, Logger: slog.New(slog.DiscardHandler)}
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for what, spoil := range map[string]func(*Options){
		"no certificate":  func(o *Options) { o.CertFile, o.KeyFile = "", "" },
		"no authority":    func(o *Options) { o.CAFile = "" },
		"half a pair":     func(o *Options) { o.KeyFile = "" },
		"no such file":    func(o *Options) { o.CAFile += "x" },
		"no certificates": func(o *Options) { o.CAFile = keyFile },
	} {
		bad := o
		spoil(&bad)
		if other, err := Dial(t.Context(), bad); err == nil {
			other.Close()
			t.Errorf("%s: connected", what)
		}
	}
	port := s.Addr().(*net.TCPAddr).Port
	stop(s)
	write(second, second.sign(t, "node"))
	s = serve(second, port)
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !c.NATS().IsConnected() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no connection by the new certificates: %v", c.NATS().LastError())
		}
	}
}
