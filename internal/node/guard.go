package node

import (
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"duly.dev/duly/internal/core"
)

// guard keeps web pages out of a server that asks for no password. A page of any site can make the browser of someone
// who has it open send requests to this machine: simple ones at once, and any others after its host name was made to
// mean this machine's address. So a body has to say that it is JSON, which a page may not say to a strange server
// without asking it first, and on a loopback address the host has to be this machine's.
func guard(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !ownHost(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf(
				"host %s is not served on a loopback address; want localhost or the address itself", core.QuoteShort(r.Host)))
			return
		}
		if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
			if given := r.Header.Get("Content-Type"); !isJSON(given) {
				w.Header().Set("Accept", "application/json")
				refuse(w, http.StatusUnsupportedMediaType, fmt.Sprintf(
					"content type %s is not taken; want application/json", core.QuoteShort(given)))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a Host header names this machine by a name that no one else can give away. Without one, as
// HTTP/1.0 has it, there is no browser.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// refuse answers with a problem document (RFC 9457).
func refuse(w http.ResponseWriter, code int, detail string) {
	body, err := json.Marshal(map[string]any{
		"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": detail,
	})
	if err != nil {
		body = nil // strings and numbers always marshal
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // an error is a client that went away
}
