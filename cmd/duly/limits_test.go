package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

func (e *engine) limiting() *operate.Limiting {
	return &operate.Limiting{Store: e, Desk: e.desk(), Plans: e.Plans, Announce: func() error { return nil }, Now: time.Now}
}

func (e *engine) AgentLimits(context.Context) ([]operate.AgentLimit, error) { return e.limits, nil }

func (e *engine) PutLimit(_ context.Context, l operate.AgentLimit) (bool, error) {
	e.limits = []operate.AgentLimit{l}
	return true, nil
}

func (e *engine) DeleteLimit(_ context.Context, agent string) error {
	e.limits = slices.DeleteFunc(e.limits, func(l operate.AgentLimit) bool { return l.Agent == agent })
	return nil
}

func (e *engine) Granted(context.Context, core.Instant) (map[string]operate.Granted, error) {
	return map[string]operate.Granted{"payment.charge": {Holders: 3, Wanted: 412, Places: 17, Keys: 31, Busiest: []operate.KeyGranted{{Key: "acme", Holders: 2, Wanted: 88, Places: 5}}}}, nil
}

// TestLimits: a limit is set, seen and removed with a reason; a rate may be said in minutes and hours; what cannot be is
// refused.
func TestLimits(t *testing.T) {
	e := newEngine(t)
	e.token(operate.RoleOperator)
	e.run(exitDone, "limits", "no limit")
	e.run(exitDone, "limits set payment.charge --concurrent 20 --rate 6/min --reason slow", "agent payment.charge gets 20 calls at a time and 0.1 calls a second at most (to remove this: duly limits remove payment.charge --reason 'why')")
	if l := e.limits[0]; l.Concurrent != 20 || l.RateMilli != 100 || l.By != "operator" || l.Reason != "slow" || l.Revision != 1 {
		t.Errorf("%+v", l)
	}
	e.run(exitDone, "limits", "CONCURRENT", "GRANTED", "WANTED", "payment.charge", "20", "17", "0.1", "412", "3", "slow")
	e.run(exitDone, "limits list -o json", `"granted":17`, `"wanted":412`)
	e.run(exitDone, "limits set payment.charge --rate 2.5 --reason slower -o json", `"rate":2.5`, `"revision":2`)
	e.run(exitDone, "limits set payment.charge --rate 36/h --reason slower", "gets 0.01 calls a second at most")
	e.run(exitUse, "limits set payment.charge --reason x", "nothing to bound")
	e.run(exitDone, "limits set payment.charge --concurrent 20 --key input.customer --key-concurrent 2 --key-rate 6/min --reason fair", "gets 20 calls at a time, 2 calls at a time and 0.1 calls a second for each input.customer at most")
	if l := e.limits[0]; l.Key != "input.customer" || l.KeyConcurrent != 2 || l.KeyRateMilli != 100 {
		t.Errorf("%+v", l)
	}
	e.run(exitDone, "limits set payment.charge --key type --key-rate 1 --reason fair", "gets 1 call a second for each type at most")
	e.run(exitDone, "limits", "KEYS", "31")
	e.run(exitDone, "limits list -o csv", "key,key_concurrent,key_rate", "31,type,,1,")
	e.run(exitDone, "limits keys payment.charge", "KEY", "HOLDERS", "WANTED", "PLACES", "acme", "88")
	e.run(exitDone, "limits keys payment.charge -o json", `{"busiest_keys":[{"key":"acme","holders":2,"wanted":88,"places":5}]}`)
	e.run(exitNotFound, "limits keys other", `agent "other" has no limit`)
	e.run(exitUse, "limits set payment.charge --key type --reason x", "want --key with --key-concurrent")
	e.run(exitUse, "limits set payment.charge --key-rate 1 --reason x", "want --key with --key-concurrent")
	e.run(exitUse, "limits set payment.charge --key type --key-rate 1/day --reason x", "key-rate: ", "want calls a second")
	e.run(exitUse, "limits set payment.charge --key input. --key-rate 1 --reason x", "key: line 1, column 7")
	e.run(exitUse, "limits set payment.charge --concurrent 5", "reason: none given")
	for _, rate := range []string{"0", "-1", "x", "5/day", "NaN", "/s"} {
		e.run(exitUse, "limits set payment.charge --rate="+rate+" --reason x", "want calls a second")
	}
	e.run(exitUse, "limits set payment.charge --rate 1/h --reason x", "expected number >= 0.001")
	e.run(exitUse, "limits set payment.charge --concurrent 1000001 --reason x", "concurrent")
	e.run(exitUse, "limits set payment.charge --concurrent 0 --rate 1 --reason x", "concurrent: 0, want 1 or more")
	e.run(exitUse, "limits set payment.charge --key type --key-rate 1 --key-concurrent 0 --reason x", "key-concurrent: 0, want 1 or more")
	e.run(exitUse, "limits set a..b --concurrent 1 --reason x", "a..b")
	e.run(exitUse, "limits remove payment.charge", "reason: none given")
	e.run(exitDone, "limits remove payment.charge --reason over", "agent payment.charge no longer has a limit")
	e.run(exitNotFound, "limits remove payment.charge --reason over", "has no limit")
	e.token(operate.RoleViewer)
	e.run(exitDone, "limits", "no limit")
	e.run(exitForbidden, "limits set payment.charge --rate 1 --reason x", "needs the role operator")
}
