package observe

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/freeport"
)

// mailServer is a mailpit, built as a tool of this module.
type mailServer struct{ smtp, http string }

// serveMail starts a mailpit with these flags and waits until it takes mail.
func serveMail(t *testing.T, flags ...string) mailServer {
	t.Helper()
	built, err := exec.Command("go", "tool", "-n", "mailpit").Output()
	if err != nil {
		t.Fatalf("go tool -n mailpit: %v", err)
	}
	m := mailServer{freeport.Addr(freeport.Of(t)), freeport.Addr(freeport.Of(t))}
	var out bytes.Buffer
	cmd := exec.Command(strings.TrimSpace(string(built)), append([]string{"--smtp", m.smtp, "--listen", m.http, "--disable-version-check", "--database", filepath.Join(t.TempDir(), "mail.db")}, flags...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); ; {
		conn, err := net.Dial("tcp", m.smtp)
		if err == nil {
			_ = conn.Close()
			return m
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("mailpit does not start")
		}
	}
}

// mails are those that have come.
func (m mailServer) mails(t *testing.T) (all []struct {
	ID, Subject, MessageID, Snippet string
	From                            struct{ Address string }
	To                              []struct{ Address string }
}) {
	t.Helper()
	resp, err := http.Get("http://" + m.http + "/api/v1/messages")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := struct{ Messages any }{&all}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	return all
}

// certificate makes one for 127.0.0.1, as files, with the pool that trusts it.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, data := range map[string][]byte{certFile: cert, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return certFile, keyFile, roots
}

// TestMail: a real mail server takes the alerts of a channel: in the clear, with STARTTLS and a password, and with TLS
// from the beginning. A server that cannot be trusted, or that wants another password, gets none.
func TestMail(t *testing.T) {
	certFile, keyFile, roots := certificate(t)
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("duly:open-sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DULY_ALERT_PASSWORD", "open-sesame")
	t.Setenv("DULY_ALERT_WRONG", "open--sesame")
	tls := []string{"--smtp-tls-cert", certFile, "--smtp-tls-key", keyFile, "--smtp-auth-file", users}
	plain, start, whole := serveMail(t), serveMail(t, append(tls, "--smtp-require-starttls")...), serveMail(t, append(tls, "--smtp-require-tls")...)
	for _, x := range []struct {
		name   string
		server mailServer
		scheme string
		more   map[string]any
		roots  *x509.CertPool
		fails  string
	}{
		{"plain", plain, "smtp+plain", nil, nil, ""},
		{"STARTTLS", start, "smtp", map[string]any{"username": "duly", "secret_env": "DULY_ALERT_PASSWORD"}, roots, ""},
		{"TLS", whole, "smtps", map[string]any{"username": "duly", "secret_env": "DULY_ALERT_PASSWORD"}, roots, ""},
		{"no STARTTLS", plain, "smtp", nil, roots, "STARTTLS"},
		{"unknown certificate", start, "smtp", map[string]any{"username": "duly", "secret_env": "DULY_ALERT_PASSWORD"}, nil, "certificate"},
		{"other password", start, "smtp", map[string]any{"username": "duly", "secret_env": "DULY_ALERT_WRONG"}, roots, "535"},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := len(x.server.mails(t))
			channel := map[string]any{"kind": "email", "server": x.scheme + "://" + x.server.smtp, "from": "Duly <duly@example.org>", "to": []string{"ops@example.org", "night@example.org"}}
			for k, v := range x.more {
				channel[k] = v
			}
			err := sender(t, channel, alerts.Config{Roots: x.roots}).Test(t.Context(), "ops")
			mails := x.server.mails(t)
			if x.fails != "" {
				if err == nil || !strings.Contains(err.Error(), x.fails) || strings.Contains(err.Error(), "sesame") || len(mails) != before {
					t.Errorf("%v, %d mails, want an error with %q", err, len(mails), x.fails)
				}
				return
			}
			if err != nil || len(mails) != before+1 {
				t.Fatalf("%v, %d mails", err, len(mails))
			}
			m := mails[0]
			if m.Subject != "[prod] this is a test of the channel ops" || m.From.Address != "duly@example.org" || len(m.To) != 2 ||
				!strings.HasPrefix(m.MessageID, "test-") || !strings.HasSuffix(m.MessageID, "@prod.duly") || !strings.Contains(m.Snippet, "alert test (info, once)") {
				t.Errorf("%+v", m)
			}
			resp, err := http.Get(fmt.Sprintf("http://%s/api/v1/message/%s/headers", x.server.http, m.ID))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			headers := http.Header{}
			if err := json.NewDecoder(resp.Body).Decode(&headers); err != nil || headers.Get("Auto-Submitted") != "auto-generated" {
				t.Errorf("%v, %v", headers, err)
			}
		})
	}
}
