package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/operate"
)

// TestPartitionsShowChains: where chains are kept, the page says how high each is, and since when its head is elsewhere.
func TestPartitionsShowChains(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleViewer, newConsole(t, w.config()))
	if body := get(t, h, Path+"partitions").Body.String(); strings.Contains(body, "Chain</th>") {
		t.Error("a column of chains, and none is kept")
	}
	w.parts[1].Chain = operate.ChainEnd{Height: 1_234_567, Head: 1_234_560, HeadAt: noon.Add(-3 * time.Second), Signed: true}
	w.parts[2].Chain = operate.ChainEnd{Height: 7, Head: 7, HeadAt: noon}
	rec := get(t, h, Path+"partitions")
	body := rec.Body.String()
	for _, want := range []string{"Chain</th>", number(1_234_567), "not signed"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of partitions does not say %q", want)
		}
	}
	if rec.Code != http.StatusOK || strings.Count(body, "not signed") != 1 {
		t.Errorf("status %d, %d heads that are not signed, want one", rec.Code, strings.Count(body, "not signed"))
	}
}
