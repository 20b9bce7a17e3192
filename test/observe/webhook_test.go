package observe

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"duly.dev/duly/internal/alerts"
)

// verify is how a receiver checks a webhook: docs/operations/observe.md shows it.
func verify(secret []byte, h http.Header, body []byte) error {
	at, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return errors.New("too old, or of the future")
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), at, body)
	for _, one := range strings.Fields(h.Get("webhook-signature")) {
		got, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1,"))
		if err == nil && hmac.Equal(got, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("no signature fits")
}

// TestWebhookIsStandard: the libraries of receivers take a webhook: Standard Webhooks verifies its signature, also while
// two secrets are in use, and CloudEvents reads its body. What was changed on the way is refused.
func TestWebhookIsStandard(t *testing.T) {
	const first, second = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	got := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		got <- r
	}))
	t.Cleanup(server.Close)
	t.Setenv("DULY_ALERT_SIGN", first+"\n"+second)
	s := sender(t, map[string]any{"kind": "webhook", "url": server.URL, "secret_env": "DULY_ALERT_SIGN"}, alerts.Config{})
	if err := s.Test(t.Context(), "ops"); err != nil {
		t.Fatal(err)
	}
	r := <-got
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{first, second} {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(body, r.Header); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
		if err := hook.Verify(append(body, ' '), r.Header); err == nil {
			t.Error("a changed body is taken")
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(key, r.Header, body); err != nil {
			t.Error(err)
		}
		if verify(key, r.Header, append(body, ' ')) == nil || verify(key[1:], r.Header, body) == nil {
			t.Error("the code of the page takes a changed body, or another secret")
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	event, err := binding.ToEvent(t.Context(), cehttp.NewMessageFromHttpRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	if err := event.Validate(); err != nil {
		t.Error(err)
	}
	if event.Type() != "dev.duly.alert.test" || event.Source() != "/duly/prod" || event.ID() != r.Header.Get("webhook-id") || time.Since(event.Time()) > time.Minute ||
		event.Extensions()["severity"] != "info" {
		t.Errorf("%s", event)
	}
	data := map[string]any{}
	if err := event.DataAs(&data); err != nil || data["name"] != "test" {
		t.Errorf("%v, %v", data, err)
	}
}

// TestPageVerifies: the code that the page gives to receivers is that of verify, which is tried above.
func TestPageVerifies(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("webhook_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(page), "```go\n")
	code, _, ends := strings.Cut(code, "```")
	squeezed := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if !found || !ends || !strings.Contains(squeezed(string(here)), squeezed(code)) {
		t.Errorf("the page has other code:\n%s", code)
	}
}
