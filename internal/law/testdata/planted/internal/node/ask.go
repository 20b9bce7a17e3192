package node

import (
	_ "encoding/csv" // breach: CSV of its own
	"net/http"
)

func ask(next func(*http.Request, []*http.Request) error) {
	_ = http.Client{CheckRedirect: next}
	_ = &http.Client{}         // breach: an http.Client without CheckRedirect
	_, _ = http.Get("")        // breach: http.Get follows redirects to any host
	_ = http.DefaultClient     // breach: http.DefaultClient follows redirects
	_ = http.Server{Addr: ":"} // no client
}
