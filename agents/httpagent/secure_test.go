package httpagent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

// TestAddresses: which addresses are dialled without a word of the file, and which with one.
//
// covers: E21, P19
func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1:248:1893:25c8:1946": true,
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "fe80::1": false,
		"fd00:ec2::254": false, "100.100.1.1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false, "224.0.0.1": false, "255.255.255.255": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "64:ff9b::7f00:1": false, "::127.0.0.1": false, "fec0::1": false, "240.0.0.1": false, "198.18.0.1": false, "64:ff9b:1::a00:1": false, "64:ff9b::5db8:d822": true,
		"168.63.129.16": false, "100.100.100.200": false, "fd20:ce::254": false, "2002:7f00:1::1": false, "2002:a9fe:a9fe::1": false, "2001:0:7f00:1::1": false, "100::1": false, "5f00::1": false,
		"3fff::1": false, "2001:db8::1": false, "2001:2::1": false, "2001:20::1": false, "192.0.2.1": false, "198.51.100.1": false, "203.0.113.1": false, "192.88.99.1": false, "64:ff9b::a83f:8110": false,
	} {
		if got := (&addresses{}).may(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	a := addresses{names: []string{"orders.internal"}, networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	if !a.may(netip.MustParseAddr("10.2.3.4")) || !a.may(netip.MustParseAddr("::ffff:10.2.3.4")) || a.may(netip.MustParseAddr("172.16.0.1")) {
		t.Error("networks are not taken as they stand")
	}
	// A network that is allowed for its services does not bring the metadata of a cloud with it; its address alone does.
	for allow, want := range map[string]bool{"100.64.0.0/10": false, "100.100.100.200/32": true, "0.0.0.0/0": false} {
		if m := (addresses{networks: []netip.Prefix{netip.MustParsePrefix(allow)}}); m.may(netip.MustParseAddr("100.100.100.200")) != want {
			t.Errorf("metadata by %s: want %v", allow, want)
		}
	}
	if !a.named("Orders.Internal.") || a.named("x.orders.internal") {
		t.Error("names are not taken as they stand")
	}
}

// TestPrivateIsRefused: the name of this machine means an address that is not dialled, unless the file says so. Nothing was
// sent, and no attempt is used up.
func TestPrivateIsRefused(t *testing.T) {
	w := start(t, answers(200, "1"), "", plain)
	url := strings.Replace(w.server.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		allow string
		code  int
	}{{"[10.0.0.0/8]", 503}, {"[localhost]", 0}, {"[127.0.0.0/8, '::1']", 0}} {
		all, err := Read("agents.yaml", []byte(strings.Replace(text(url, "", plain), "[127.0.0.1]", c.allow, 1)))
		if err != nil {
			t.Fatal(err)
		}
		before := w.calls.Load()
		_, err = all.agents[0].steps[0].do.do(t.Context(), new(command()))
		all.services["bank"].close()
		if c.code == 0 && err == nil && w.calls.Load() > before {
			continue
		}
		if c.code == 0 || err == nil || !strings.Contains(err.Error(), ErrAddress.Error()) || w.calls.Load() != before {
			t.Errorf("allow %s: %v, %d calls", c.allow, err, w.calls.Load()-before)
		}
	}
}

// pair is a certificate of its own authority for 127.0.0.1, and its files.
func pair(t *testing.T, name string) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"bank.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
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
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, certFile, keyFile
}

// TestTLS: a certificate of an authority that is not known is refused before anything is sent; with the authority's file
// it is taken, and the client's own certificate shown, which is read for each connection.
func TestTLS(t *testing.T) {
	cert, ca, _ := pair(t, "bank")
	client, clientCA, clientKey := pair(t, "agent")
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(client.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%q", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	w := &world{t: t}
	w.serve(server.URL, "tries: 1", plain)
	w.want(command(), 502, "failed to verify certificate")
	w.serve(server.URL, "tls: {ca: "+ca+"}", plain)
	w.want(command(), 502, "x509") // its name is not that of the address
	w.serve(server.URL, "tls: {ca: "+ca+", server_name: bank.example}", plain)
	w.want(command(), 502, "") // the server wants a certificate
	w.serve(server.URL, "tls: {ca: "+ca+", server_name: bank.example, cert: "+clientCA+", key: "+clientKey+"}", plain)
	w.want(command(), 0, `"agent"`)
}

// TestSecrets: each way to be known, and that no error has the secret, also where the service repeats it.
//
// covers: inv12
func TestSecrets(t *testing.T) {
	const token = "s3cr3t-t0ken"
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BANK_TOKEN", token)
	for service, want := range map[string][2]string{
		"auth: {bearer: {file: " + path + "}}":                         {"Authorization", "Bearer " + token},
		"auth: {basic: {user: duly, env: BANK_TOKEN}}":                 {"Authorization", "Basic ZHVseTpzM2NyM3QtdDBrZW4="},
		"auth: {header: {name: x-api-key, env: BANK_TOKEN}}":           {"X-Api-Key", token},
		"headers: {X-Tenant: shop}\nauth: {bearer: {env: BANK_TOKEN}}": {"X-Tenant", "shop"},
	} {
		w := start(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(want[0]); got != want[1] {
				t.Errorf("%s: %s is %q, want %q", service, want[0], got, want[1])
			}
			http.Error(w, fmt.Sprint(r.Header), http.StatusUnprocessableEntity)
		}, service, plain)
		reply := w.want(command(), 422, "it answers 422")
		for _, secret := range []string{token, "ZHVseTpzM2NyM3QtdDBrZW4="} {
			if strings.Contains(reply.Error, secret) {
				t.Errorf("%s: the error has the secret: %s", service, reply.Error)
			}
		}
	}
}

// TestSecretAtTheCut: an error is cut, and an answer read, to a bound; a secret that the service repeats there is hidden all
// the same, in an answer that is shortened by its white space as well.
//
// covers: P13
func TestSecretAtTheCut(t *testing.T) {
	const token = "zq81-kd93-mm42-tt77-bb06"
	t.Setenv("BANK_TOKEN", token)
	var body string
	w := start(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, http.StatusUnprocessableEntity) }, "auth: {bearer: {env: BANK_TOKEN}}", plain)
	for _, filling := range []string{"x", " "} {
		for _, at := range []int{200, errorBodyMax} {
			for _, piece := range []int{13, 18, 23} {
				body = strings.Repeat(filling, at-piece) + token + " and more"
				if reply := w.want(command(), 422, "it answers 422"); strings.Contains(reply.Error, token[:12]) {
					t.Errorf("%d bytes before the cut at %d: %s", piece, at, reply.Error)
				}
			}
		}
	}
	// A request that was sent before the secret changed is told of by the one that it had.
	secret := &secret{text: token, last: "old-" + token[:12]}
	if got := (&auth{secret: secret}).hide("no " + secret.last); got != "no xxxxx" {
		t.Error(got)
	}
}

// TestSecretIsReadAgain: a secret in a file follows the file, and stays as it was while the file cannot be read.
func TestSecretIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	s, err := newSecret(path, "")
	if err != nil || s.value() != "one" {
		t.Fatalf("%v", err)
	}
	write("two")
	if s.value() != "one" {
		t.Error("the file is read for each request")
	}
	s.read = time.Now().Add(-2 * secretAge)
	if s.value() != "two" {
		t.Error("the file is not read again")
	}
	write("")
	s.read = time.Now().Add(-2 * secretAge)
	if s.value() != "two" {
		t.Error("what cannot be read took the place of the secret")
	}
}

// TestRequest: what the service is sent: path, query, headers, key and body.
func TestRequest(t *testing.T) {
	var got string
	w := start(t, func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1000)
		n, _ := r.Body.Read(body)
		got = fmt.Sprint(r.Method, " ", r.URL.EscapedPath(), "?", r.URL.RawQuery, " ", r.Header.Get("Idempotency-Key"), " ", r.Header.Get("X-Cents"), " ",
			r.Header.Get("Traceparent"), " ", r.Header.Get("Content-Type"), " ", string(body[:n]))
		w.WriteHeader(204)
	}, "", `
do:
  method: POST
  path: /c/{input.id}/{{x}}/ü/{key}?n={input.note}&a={attempt}
  headers: {X-Cents: "{input.cents} ct of {task_type}"}
  body: "{'amount': input.cents, 'ref': task + '/' + step, 'of': results.credit.points}"
undo:
  path: "/c/{known ? string(result.id) : ref}"
`)
	cmd := command()
	cmd.Input, cmd.Trace = []byte(`{"cents":5,"id":"a/b c?","note":"&=ü"}`), "00-1-2-01"
	cmd.Results = []core.StepResult{{Step: "credit", Result: []byte(`{"points":7}`)}}
	w.want(cmd, 0, "")
	if want := `POST /c/a%2Fb%20c%3F/%7Bx%7D/%C3%BC/order-17%2Fcharge%2F0?n=%26%3D%C3%BC&a=1 order-17/charge/0 5 ct of order 00-1-2-01 application/json {"amount":5,"of":7,"ref":"order-17/charge"}`; got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
	w.want(undo(), 0, "")
	if want := `DELETE /c/order-17.charge.0? order-17/charge/0/undo    `; got != want {
		t.Errorf("\n%q\nwant\n%q", got, want)
	}
	knows := undo()
	knows.Result = []byte(`{"id":9}`)
	w.want(knows, 0, "")
	if !strings.HasPrefix(got, "DELETE /c/9? ") {
		t.Errorf("%s", got)
	}
}

// TestBodyForms: a form, and text as it is.
func TestBodyForms(t *testing.T) {
	var got string
	handler := func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 1000)
		n, _ := r.Body.Read(body)
		got = r.Header.Get("Content-Type") + " " + string(body[:n])
		_, _ = w.Write([]byte("fine"))
	}
	w := start(t, handler, "", `do: {path: /c, content_type: application/x-www-form-urlencoded, body: "{'a': input.cents, 'b': ['x', 'y&'], 'c': true}", answer: text}`)
	w.want(command(), 0, `"fine"`)
	if want := "application/x-www-form-urlencoded a=1999&b=x&b=y%26&c=true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w = start(t, handler, "", `do: {path: /c, content_type: text/csv, body: "'a,' + string(input.cents)", answer: text, result: "{'said': body, 'status': status, 'kind': headers['content-type']}"}`)
	w.want(command(), 0, `{"kind":"text/plain; charset=utf-8","said":"fine","status":200}`)
	if got != "text/csv a,1999" {
		t.Errorf("%s", got)
	}
	start(t, handler, "", `do: {path: /c, content_type: text/csv, body: input}`).want(command(), 400, "body: it gives a map, want text")
	start(t, handler, "", `do: {path: /c, content_type: application/x-www-form-urlencoded, body: "{'a': {'b': 1}}"}`).want(command(), 400, "a form has text")
	start(t, answers(200, `{"a":1}`), "", `do: {path: /c, result: body.b}`).want(command(), 512, `result: at column 5 of body.b: there is no "b"`)
}

// TestInvalidRequests: a template that makes no address, or another one than was meant, is final and names the step; an
// undo's is tried again, for the file may be corrected.
//
// covers: I17
func TestInvalidRequests(t *testing.T) {
	for input, has := range map[string]string{
		`{"id":".."}`:       `step charge: do: path: {input.id}: it has the part ".."`,
		`{"id":"../admin"}`: `it has the part ".."`,
		`{"id":"a\\..\\b"}`: `it has the part ".."`,
		`{"id":""}`:         `it is empty`,
		`{"id":null}`:       `{input.id} gives null, want text or a number`,
		`{"id":[1]}`:        `{input.id} gives a list, want text or a number`,
		`{}`:                `there is no "id"`,
		`{"id":"` + strings.Repeat("x", urlBytesMax) + `"}`: `it has more than 8192 bytes`,
		`{"id":"x","h":"a\nb"}`:                             `step charge: do: header X-H: {has(input.h) ? input.h : ''}: it has a character that no header can carry`,
		`{"$duly":{"form":"A256GCM-1"}}`:                    `there is no "id"`,
	} {
		w := start(t, answers(200, "1"), "", `
do: {path: "/c/{input.id}", headers: {X-H: "{has(input.h) ? input.h : ''}"}}
undo: {path: "/c/{input.id}"}
`)
		cmd := command()
		cmd.Input = []byte(input)
		w.want(cmd, 400, has)
		if back := undo(); !strings.Contains(input, `"h"`) {
			back.Input = cmd.Input
			w.want(back, 500, "step charge: undo: path")
		}
		if n := w.calls.Load(); n != 0 && !strings.Contains(input, `"h"`) {
			t.Errorf("%.40s: %d calls", input, n)
		}
	}
}
