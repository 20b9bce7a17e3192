package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// clientCABytesMax bounds the file of authorities.
const clientCABytesMax = 1 << 20

// clientCAs are the authorities that certificates of clients are checked against.
type clientCAs struct{ *reloaded[*x509.CertPool] }

func newClientCAs(file string, now func() time.Time, failed func(error)) (*clientCAs, error) {
	load := func() (*x509.CertPool, error) {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		if info.Size() > clientCABytesMax {
			return nil, fmt.Errorf("%s has %d bytes, the limit is %d", file, info.Size(), clientCABytesMax)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return nil, errors.New(file + " has no certificate in PEM")
		}
		return pool, nil
	}
	w, err := newReloaded("http-client-ca", []string{file}, load, now, failed)
	return &clientCAs{w}, err
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
