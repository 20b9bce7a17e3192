//go:build unix

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/postgres"
)

// signer signs certificates of tests.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate, by itself without a signer, and writes both.
func issue(t *testing.T, by *signer, name, certFile, keyFile string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		by = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
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
	return &signer{cert, key}
}

// TestClientCertificate: a database that asks for a certificate gets that of the URL, and is believed by the authority of
// the URL; new connections show the certificate that the files have by then.
func TestClientCertificate(t *testing.T) {
	cluster, err := localpg.Start(localpg.Options{FsyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	plain, err := cluster.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var data, hba string
	if err := conn.QueryRow(t.Context(), `SELECT current_setting('data_directory'), current_setting('hba_file')`).Scan(&data, &hba); err != nil {
		t.Fatal(err)
	}
	// What the server reads is the server's.
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	in := func(name string) string { return filepath.Join(data, name) }
	mine := t.TempDir()
	own := func(name string) string { return filepath.Join(mine, name) }
	first := issue(t, nil, "first", in("ca.pem"), own("ca.key"))
	issue(t, first, "127.0.0.1", in("server.pem"), in("server.key"))
	second := issue(t, nil, "second", own("second.pem"), own("second.key"))
	serve := func(ca *signer) {
		t.Helper()
		if err := os.WriteFile(in("ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"ca.pem", "server.pem", "server.key"} {
			if err := os.Chown(in(file), int(owner.Uid), int(owner.Gid)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Exec(t.Context(), `SELECT pg_reload_conf()`); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"ssl": "on", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key", "ssl_ca_file": "ca.pem"} {
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(`ALTER SYSTEM SET %s = '%s'`, name, value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(hba, []byte("local all all trust\nhostssl all all 127.0.0.1/32 cert\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own("root.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(first)
	issue(t, first, "postgres", own("cert.pem"), own("key.pem"))
	base := strings.Replace(plain, "sslmode=disable", "sslmode=verify-full&sslrootcert="+own("root.pem"), 1)
	url := base + "&sslcert=" + own("cert.pem") + "&sslkey=" + own("key.pem")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	// taken waits until the server has read its files again, which it does by and by.
	taken := func(url string) {
		t.Helper()
		for late := time.After(time.Minute); ; {
			c, err := pgx.Connect(t.Context(), url)
			if err == nil {
				_ = c.Close(t.Context())
				return
			}
			select {
			case <-tick.C:
			case <-late:
				t.Fatal(err)
			}
		}
	}
	taken(url)
	s := open(t, url, schema.Options{MaxConns: 2})
	if err := s.Partitions(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	issue(t, first, "somebody", own("other.pem"), own("other.key"))
	for what, bad := range map[string]string{
		"no certificate":                  base,
		"another user's":                  base + "&sslcert=" + own("other.pem") + "&sslkey=" + own("other.key"),
		"another authority of the server": strings.Replace(url, own("root.pem"), own("second.pem"), 1),
	} {
		if other, err := postgres.Open(t.Context(), bad, schema.Options{MaxConns: 2}); err == nil {
			_ = other.Close()
			t.Errorf("%s: opened", what)
		}
	}
	// Another authority, and another certificate in the same files.
	serve(second)
	issue(t, second, "postgres", own("cert.pem"), own("key.pem"))
	taken(url)
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	for late := time.After(time.Minute); ; {
		if _, err = s.Cursors(t.Context()); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no connection by the new certificate: %v", err)
		}
	}
}
