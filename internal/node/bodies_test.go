package node

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"duly.dev/duly/internal/auth"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

// faced is a node that does not run, and everything that it serves over HTTP with tokens.
func faced(t *testing.T, change func(*config.Config)) (*Node, *operatorsHTTP, http.Handler) {
	t.Helper()
	cfg := good()
	cfg.NATSURL, cfg.DatabaseURL, cfg.Namespace = startNATS(t).ClientURL(), "sqlite:"+filepath.Join(t.TempDir(), "duly.db"), wire.DefaultNamespace
	cfg.Auth, cfg.URL = config.AuthOIDC, "http://duly.example.org"
	cfg.OIDCIssuer, cfg.OIDCClientID, cfg.OIDCAdmins = "http://127.0.0.1:1", "duly", []string{"admins"}
	if change != nil {
		change(&cfg)
	}
	if err := Migrate(t.Context(), cfg.DatabaseURL); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	faces, err := n.newOperatorsHTTP()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := n.handler(false, faces)
	if err != nil {
		t.Fatal(err)
	}
	return n, faces, handler
}

// tokenOf makes a token of that role.
func tokenOf(t *testing.T, n *Node, role operate.Role) string {
	t.Helper()
	_, text, err := auth.CreateToken(t.Context(), n.store.(operate.TokenStore), "some-"+string(role), role, "test", n.now(), n.now().Add(1<<40))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// paths are all that a node serves over HTTP: of the description, of the source of the console, and those beside.
func paths(t *testing.T, handler http.Handler) []string {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var doc struct{ Paths map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	all := append([]string{"/", "/metrics", "/openapi.json", "/no/such", "/console/no-such", auth.PathSignIn, auth.PathLeave, auth.PathCallback, auth.PathSignOut}, HealthPaths...)
	for path := range doc.Paths {
		all = append(all, path)
	}
	source, err := os.ReadFile("../console/console.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\t(?:get|post)\("([^"]*)"`).FindAllSubmatch(source, -1) {
		all = append(all, "/console/"+strings.TrimSuffix(string(m[1]), "{$}"))
	}
	for i, path := range all {
		all[i] = regexp.MustCompile(`{\w+}`).ReplaceAllString(path, "x")
	}
	if len(all) < 100 {
		t.Fatalf("%d paths: %v", len(all), all)
	}
	return all
}

// poured is a body that counts what is read of it.
type poured struct {
	io.Reader
	read int64
}

func (p *poured) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.read += int64(n)
	return n, err
}

// zeros is without an end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestEveryBodyIsBounded: whatever the path and the method, with and without credentials, of a body no more is read than the
// limit, and of one that has a file nothing is left in the folder of temporary files.
//
// covers: P1
func TestEveryBodyIsBounded(t *testing.T) {
	temp := t.TempDir()
	n, _, handler := faced(t, nil)
	admin := tokenOf(t, n, operate.RoleAdmin)
	t.Setenv("TMPDIR", temp)
	gone, leave := context.WithCancel(t.Context())
	leave() // so that a stream that were opened would end
	const file = "--b\r\nContent-Disposition: form-data; name=\"within\"; filename=\"f\"\r\n\r\n"
	for _, path := range paths(t, handler) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			for _, kind := range []string{"multipart/form-data; boundary=b", "application/x-www-form-urlencoded", "application/json"} {
				for _, token := range []string{"", admin} {
					begin := map[string]string{"multipart/form-data; boundary=b": file, "application/x-www-form-urlencoded": "x=", "application/json": `"`}[kind]
					body := &poured{Reader: io.MultiReader(strings.NewReader(begin), io.LimitReader(zeros{}, 40<<20))}
					r := httptest.NewRequestWithContext(gone, method, path, body)
					r.Header.Set("Content-Type", kind)
					if token != "" {
						r.Header.Set("Authorization", "Bearer "+token)
					}
					handler.ServeHTTP(httptest.NewRecorder(), r)
					if body.read > 1<<20+1 {
						t.Errorf("%s %s as %s, with a token %v: %d bytes were read", method, path, kind, token != "", body.read)
					}
				}
			}
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of temporary files: %v %v", left, err)
	}
}

// TestExportsBelowABase: where a proxy serves the node below a path, the whole lists that pages lead to are served there, too.
func TestExportsBelowABase(t *testing.T) {
	n, _, handler := faced(t, func(cfg *config.Config) { cfg.URL = "https://example.org/duly" })
	secret := tokenOf(t, n, operate.RoleViewer)
	ask := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	page := ask("/duly/console/tasks?state=error&created_from=2026-03-01").Body.String()
	found := regexp.MustCompile(`href="([^"]+)" download`).FindAllStringSubmatch(page, -1)
	for _, link := range found {
		if w := ask(html.UnescapeString(link[1])); w.Code != http.StatusOK || !strings.Contains(w.Header().Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %d %s", link[1], w.Code, w.Body)
		}
	}
	if len(found) != 2 {
		t.Errorf("%d exports in %s", len(found), page)
	}
	r := httptest.NewRequest("PUT", "/duly/v1/tasks/order/o-1", strings.NewReader("{}")) // which the guard would take for no change
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusNotFound {
		t.Errorf("a change below the base: %d %s", w.Code, w.Body)
	}
}
