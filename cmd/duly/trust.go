package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"

	"duly.dev/duly/cmd/duly/internal/client"
)

// trust is whom a command believes, and by what it is known, where the node is asked by TLS.
type trust struct {
	CA   string `name:"ca" env:"DULY_CA" help:"File with the certificates, PEM, that the node's own is checked against (default: the system's)."`
	Cert string `name:"cert" env:"DULY_CERT" help:"File with a client certificate and its chain, PEM, for nodes that ask for one."`
	Key  string `name:"cert-key" env:"DULY_CERT_KEY" help:"File with its key, PEM."`
}

// caBytesMax bounds a file of certificates.
const caBytesMax = 1 << 20

// transport is what a client asks by; nil: the usual.
func (t *trust) transport() (http.RoundTripper, error) {
	if t.CA == "" && t.Cert == "" && t.Key == "" {
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		info, err := os.Stat(t.CA)
		if err != nil {
			return nil, misuse("ca: %v", err)
		}
		if info.Size() > caBytesMax {
			return nil, misuse("ca: %s has %d bytes, the limit is %d", t.CA, info.Size(), caBytesMax)
		}
		data, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, misuse("ca: %v", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(data) {
			return nil, misuse("ca: %s has no certificate in PEM", t.CA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, misuse("cert and cert-key go together: one is given, want both or none")
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, misuse("cert: %v", err)
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	return client.Transport(secure), nil
}
