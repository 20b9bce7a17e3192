package console

import (
	"net/http"
	"strings"
	"testing"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// TestChildPages opens the pages of a child, whose id has a mark that no client may give, and the link to its parent.
func TestChildPages(t *testing.T) {
	const child = "order-1002~pack~17~r1"
	w := fixedWorld()
	l := w.find("order-1002")
	l.view.ID, l.view.Ancestors = child, []core.TaskName{{Type: "parcel", ID: "order-1002~pack"}, {Type: "order", ID: "order-1002"}}
	h := as(operate.RoleAdmin, newConsole(t, w.config()))
	base := Path + "tasks/order/" + child
	for _, path := range []string{"", "/payload?of=input", "/act/resubmit"} {
		if rec := get(t, h, base+path); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
	if body := get(t, h, base).Body.String(); !strings.Contains(body, `href="`+Path+`tasks/parcel/order-1002~pack"`) {
		t.Error("no link to the parent")
	}
	crumbs := get(t, h, base).Body.String()
	if root, parent := strings.Index(crumbs, `href="`+Path+`tasks/order/order-1002"`), strings.Index(crumbs, `href="`+Path+`tasks/parcel/order-1002~pack"`); root < 0 || parent < root {
		t.Errorf("the way from the root is at %d and %d of the page, want the root first", root, parent)
	}
	if rec := get(t, h, Path+"tasks/order/order-1002~~1"); rec.Code != http.StatusBadRequest {
		t.Errorf("an id that no task can have: %d", rec.Code)
	}
}
