package node

import (
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"duly.dev/duly/internal/api"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// guard keeps web pages of other sites out of the API. A page of any site can make the browser of someone who has it open
// send requests to this machine: simple ones at once, and any others after its host name was made to mean this machine's
// address. So a body of the API has to say that it is JSON, which a page may not say to a strange server without asking
// it first, and on a loopback address the host has to be this machine's. Elsewhere it has to be one of hosts, if some are
// named; if none are, and who asks needs no credentials (open), one that no stranger can point here.
func guard(next http.Handler, loopback, open bool, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !ownHost(r.Host) && !namedHost(r.Host, hosts) {
			refuse(w, r, http.StatusMisdirectedRequest, say.Of("refuse.host-loopback", "host", core.QuoteShort(r.Host)))
			return
		}
		if !loopback && len(hosts) > 0 && !namedHost(r.Host, hosts) {
			refuse(w, r, http.StatusMisdirectedRequest, say.Of("refuse.host", "host", core.QuoteShort(r.Host)))
			return
		}
		if !loopback && open && len(hosts) == 0 && !plainHost(r.Host) {
			refuse(w, r, http.StatusMisdirectedRequest, say.Of("refuse.host-open", "host", core.QuoteShort(r.Host)))
			return
		}
		changes := r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch
		if changes && strings.HasPrefix(r.URL.Path, "/v1/") {
			want := "application/json"
			if r.URL.Path == bulkPath {
				want = "application/x-ndjson"
			}
			if given := r.Header.Get("Content-Type"); !isKind(given, want) {
				w.Header().Set("Accept", want)
				refuse(w, r, http.StatusUnsupportedMediaType, say.Of("refuse.content-type", "given", core.QuoteShort(given), "want", want))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// The bodies of requests: every route has this limit, some have lower ones of their own. A form has an input of 256 KiB at
// most, which may be three times as long when it is encoded. A bulk submission alone is as long as its settings allow.
const (
	bodyBytesMax = 1 << 20
	bulkPath     = "/v1/tasks"
)

// limited bounds the body of every request, whatever its path and method.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != bulkPath {
			r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		}
		next.ServeHTTP(w, r)
	})
}

// namedHost reports whether a Host header is one of the names, whatever its port.
func namedHost(host string, names []string) bool {
	host = strings.TrimSuffix(bareHost(host), ".")
	return slices.ContainsFunc(names, func(name string) bool { return strings.ToLower(name) == host })
}

// ownHost reports whether a Host header names this machine by a name that no one else can give away. Without one, as
// HTTP/1.0 has it, there is no browser.
func ownHost(host string) bool {
	host = strings.TrimSuffix(bareHost(host), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// plainHost reports whether a Host header is an address, or a name that the domain name system of the world does not know: no
// one who owns a domain can make it mean another machine.
func plainHost(host string) bool {
	_, err := netip.ParseAddr(bareHost(host))
	return err == nil || ownHost(host) || !strings.Contains(bareHost(host), ".")
}

// bareHost is a Host header in lower case, without its port and brackets.
func bareHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

func isKind(contentType, want string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == want
}

// refuse answers with a problem document (RFC 9457).
func refuse(w http.ResponseWriter, r *http.Request, code int, text string) {
	api.WriteRefusal(w, r, &operate.Refusal{Code: code, Detail: text})
}
