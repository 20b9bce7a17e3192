package egress

import (
	"errors"
	"fmt"
	"net/http"
)

// redirectsMax bounds how often a server may send a request elsewhere on its own host.
const redirectsMax = 3

// errElsewhere is wrapped by the error about a redirect that is not followed.
var errElsewhere = errors.New("it redirects to another place: configure that address")

// SameOrigin is for http.Client.CheckRedirect: headers, secrets and body are for the host, port and scheme that were
// asked, and a redirect that would change the method would lose the body.
func SameOrigin(next *http.Request, via []*http.Request) error {
	first := via[0]
	if next.URL.Host != first.URL.Host || next.URL.Scheme != first.URL.Scheme || next.Method != first.Method {
		return errElsewhere
	}
	if len(via) > redirectsMax {
		return fmt.Errorf("it redirects more than %d times", redirectsMax)
	}
	return nil
}
