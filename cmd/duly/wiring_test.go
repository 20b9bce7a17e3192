package main

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
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/pgtestdb"
)

// natsServer is a NATS server with a configuration of its own.
func natsServer(t *testing.T, opts natsd.Options) *natsd.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog, opts.JetStream, opts.StoreDir = "127.0.0.1", natsd.RANDOM_PORT, true, true, true, t.TempDir()
	s, err := natsd.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// certificate is one of an authority of its own for 127.0.0.1, and the authority's file.
func certificate(t *testing.T) (cert tls.Certificate, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "duly test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority
}

// TestServeByContextOverTLS: a node reaches a server that wants TLS before anything else and
// has a certificate of an authority that the machine does not know, as its context says.
//
// covers: inv12
func TestServeByContextOverTLS(t *testing.T) {
	cert, authority := certificate(t)
	s := natsServer(t, natsd.Options{TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, TLSHandshakeFirst: true})
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	folder := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"url":"tls://%s","ca":%q,"tls_first":true}`, s.Addr(), authority)
	if err := os.WriteFile(filepath.Join(folder, "shop.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	database := pgtestdb.Installation(t)
	if err := node.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	n := start(t, "serve", "--nats-context", "shop", "--database-url", database, "--http-addr", "127.0.0.1:0", "--partitions", "2", "--stream-max-bytes", "1000000")
	n.ready()
	if code := n.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestDevListensToThisMachineAlone: neither HTTP nor NATS of `duly dev`, which ask for no
// password, are reached from elsewhere.
//
// covers: inv12
func TestDevListensToThisMachineAlone(t *testing.T) {
	t.Parallel()
	c := start(t, "dev", "--port", "0", "--nats-port", "0", "--data-dir", t.TempDir())
	u, err := url.Parse(c.ready())
	if err != nil {
		t.Fatal(err)
	}
	if ip := net.ParseIP(u.Hostname()); !ip.IsLoopback() {
		t.Errorf("HTTP is served on %s", u.Host)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range all {
		of, ok := addr.(*net.IPNet)
		if !ok || of.IP.IsLoopback() || of.IP.IsLinkLocalUnicast() {
			continue
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(of.IP.String(), u.Port()), time.Second)
		if err == nil {
			t.Errorf("HTTP is served on %s", conn.RemoteAddr())
			_ = conn.Close()
		}
	}
}

// TestStoppedNodeGivesItsLeasesBack: a node that stops leaves its name and its lead free at
// once, however long its lease.
//
// covers: inv11
func TestStoppedNodeGivesItsLeasesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := start(t, "serve", "--node-name", "one", "--nats-url", c.nats, "--database-url", c.db, "--http-addr", "127.0.0.1:0", "--partitions", "8", "--lease", "10m")
	n.ready()
	js, err := c.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue("DULY_NODES")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"leader", "node.one"}
	held := func() []string {
		keys, err := kv.Keys()
		if err != nil && err != nats.ErrNoKeysFound {
			t.Fatal(err)
		}
		return slices.DeleteFunc(want[:len(want):len(want)], func(k string) bool { return !slices.Contains(keys, k) })
	}
	until(t, "it has both leases", func() bool { return len(held()) == 2 })
	if code := n.term(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if left := held(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestDeadLetterThatCannotBeStored: a message that cannot be decoded is not passed over while
// its dead letter cannot be stored; it is stored as soon as that works.
//
// covers: E30, inv2
func TestDeadLetterThatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := natsServer(t, natsd.Options{Users: []*natsd.User{
		{Username: "all", Password: "x"},
		{Username: "lame", Password: "x", Permissions: &natsd.Permissions{Publish: &natsd.SubjectPermission{Deny: []string{"duly.dead.>"}}}},
	}})
	database := pgtestdb.Installation(t)
	if err := node.Migrate(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	serve := func(user string) *child {
		return start(t, "serve", "--node-name", "one", "--nats-url", fmt.Sprintf("nats://%s:x@%s", user, s.Addr()), "--database-url", database,
			"--http-addr", "127.0.0.1:0", "--partitions", "1", "--lease", "1s", "--scan-interval", "100ms", "--drain", "1s", "--stream-max-bytes", "1000000")
	}
	lame := serve("lame")
	at := lame.up() // and not ready, for want of the right
	until(t, "it has its partition", func() bool { return strings.Contains(lame.log(), `msg="partitions taken over"`) })
	nc, err := nats.Connect(fmt.Sprintf("nats://all:x@%s", s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ subject, data string }{{"duly.tasks.0.pack", "garbage"}, {"duly.in.nosuch.t1", "1"}} {
		if _, err := js.Publish(m.subject, []byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it says that something cannot be stored", func() bool { return lame.alerts("storing", "begin") == 1 })
	if _, out, _ := command(t, "", "list", "-s", at); strings.Contains(out, "t1") {
		t.Errorf("the message was passed over:\n%s", out)
	}
	lame.term()
	at = serve("all").ready()
	until(t, "the task behind it", func() bool { _, out, _ := command(t, "", "list", "-s", at); return strings.Contains(out, "t1") })
	letter, err := js.GetLastMsg("DULY_DEAD", "duly.dead.DULY_TASKS")
	if err != nil || string(letter.Data) != "garbage" {
		t.Errorf("%v, %v", letter, err)
	}
}
