package egress

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSameOrigin: a redirect on the host that was asked is followed; one to another host, or another port of it, gets
// neither headers nor body.
//
// covers: P22
func TestSameOrigin(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	own := http.NewServeMux()
	own.HandleFunc("/there", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	own.Handle("/here", http.RedirectHandler("/there", http.StatusTemporaryRedirect))
	own.Handle("/around", http.RedirectHandler("/around", http.StatusTemporaryRedirect))
	own.Handle("/get", http.RedirectHandler("/there", http.StatusFound))
	own.Handle("/away", http.RedirectHandler(other.URL, http.StatusPermanentRedirect))
	server := httptest.NewServer(own)
	defer server.Close()
	client := &http.Client{CheckRedirect: SameOrigin}
	for path, want := range map[string]bool{"/here": true, "/around": false, "/get": false, "/away": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Api-Key", "s3cr3t")
		resp, err := client.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		if (err == nil) != want || !want && path != "/around" && !errors.Is(err, errElsewhere) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if asked != 0 {
		t.Errorf("the other host was asked %d times", asked)
	}
}
