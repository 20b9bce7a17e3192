package egress

import "net/http"

// Unswitched is a transport whose answers have a body that ends: that of a 101, to a request that asked for no other protocol,
// is the connection itself, whose reading no context ends.
type Unswitched struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u Unswitched) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close() // the connection is of no use
		resp.Body = http.NoBody
	}
	return resp, err
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (u Unswitched) CloseIdleConnections() {
	if idle, ok := u.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}
