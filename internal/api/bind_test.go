package api

import (
	"testing"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/submit"
)

// TestBind: a submission has the labels of its token beside its own.
//
// covers: P14
func TestBind(t *testing.T) {
	for _, x := range []struct{ token, said, want string }{
		{"", "a=1", "a=1"}, {"tenant=acme", "", "tenant=acme"}, {"tenant=acme", "a=1", "a=1,tenant=acme"}, {"tenant=acme", "tenant=acme,a=1", "tenant=acme,a=1"},
		{"tenant=acme", "tenant=b", "403"}, {"tenant=acme,duly-priority=low", "duly-priority=high", "403"},
	} {
		f := submit.Form{Labels: x.said}
		got := ""
		if bad := bind(operate.WithActor(t.Context(), operate.Actor{Name: "shop", Labels: x.token}), &f); bad != nil && bad.Code == 403 {
			got = "403"
		} else {
			got = f.Labels
		}
		if got != x.want {
			t.Errorf("token %s, said %s: %s, want %s", x.token, x.said, got, x.want)
		}
	}
}
