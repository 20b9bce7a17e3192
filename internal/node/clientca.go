package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// clientCABytesMax bounds the file of authorities.
const clientCABytesMax = 1 << 20

// clientCAs are the authorities that certificates of clients are checked against, read again when their file changes. What
// cannot be read then leaves those before.
type clientCAs struct {
	file   string
	now    func() time.Time
	failed func(error)

	mu     sync.Mutex
	pool   *x509.CertPool
	looked time.Time
	stamp  string
}

func newClientCAs(file string, now func() time.Time, failed func(error)) (*clientCAs, error) {
	c := &clientCAs{file: file, now: now, failed: failed, looked: now()}
	return c, c.read()
}

// read reads the file if it has changed; mu is held, or nothing else knows c yet.
func (c *clientCAs) read() error {
	info, err := os.Stat(c.file)
	if err != nil {
		return fmt.Errorf("http-client-ca: %w", err)
	}
	stamp := fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
	if stamp == c.stamp {
		return nil
	}
	if info.Size() > clientCABytesMax {
		return fmt.Errorf("http-client-ca: %s has %d bytes, the limit is %d", c.file, info.Size(), clientCABytesMax)
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		return fmt.Errorf("http-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return fmt.Errorf("http-client-ca: %w", errors.New(c.file+" has no certificate in PEM"))
	}
	c.pool, c.stamp = pool, stamp
	return nil
}

// get are the authorities as they are now.
func (c *clientCAs) get() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); now.Sub(c.looked) >= certificateLook {
		c.looked = now
		if err := c.read(); err != nil {
			c.failed(err)
		}
	}
	return c.pool
}

// ask has a server ask clients for certificates: none is fine, one that does not hold ends the handshake. A session is not
// taken up again: it would outlive an authority that is not trusted any more.
func (c *clientCAs) ask(base *tls.Config) {
	base.ClientAuth, base.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, true
	each := base.Clone()
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := each.Clone()
		now.ClientCAs = c.get()
		return now, nil
	}
}
