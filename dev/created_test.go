package dev_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestCreatedEvent: who asks by a label finds the creation of a task in the event stream, before its end; without the label
// there is the end alone.
//
// covers: I26
func TestCreatedEvent(t *testing.T) {
	w := start(t)
	w.plan(barePlan)
	w.agent("bare.reserve", answers(`{"receipt":"r-1"}`), answers(""))
	w.agent("bare.ship", answers(`{"parcel":7}`), answers(""))
	w.submit("delivery", "quiet", `{"n":1}`, nil)
	w.ends("delivery", "quiet", "processed")
	w.submit("delivery", "told", `{"n":1}`, nats.Header{"Duly-Labels": {"tenant=acme,duly-events=created"}})
	w.ends("delivery", "told", "processed")

	sub, err := w.js.SubscribeSync("duly.events.delivery.*", nats.OrderedConsumer())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for len(all) < 3 {
		msg, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatalf("%v: %v", all, err)
		}
		var event struct {
			ID, Status, Labels string
			CreatedAt          string `json:"created_at"`
			Events             []struct{ ID string }
		}
		if err := json.Unmarshal(msg.Data, &event); err != nil {
			t.Fatal(err)
		}
		if event.Status == "created" && (event.Labels != "tenant=acme,duly-events=created" || event.CreatedAt == "") {
			t.Errorf("%s", msg.Data)
		}
		for _, e := range event.Events {
			all = append(all, e.ID+" "+event.Status)
		}
		if event.ID != "" {
			all = append(all, event.ID+" "+event.Status)
		}
	}
	if all[0] != "quiet processed" || all[1] != "told created" || all[2] != "told processed" {
		t.Errorf("events %v", all)
	}
	if answer := w.submit("delivery", "wrong", `{"n":1}`, nats.Header{"Duly-Labels": {"duly-events=all"}}); !containsCode(answer, 400, 7013) {
		t.Errorf("another value: %s", answer)
	}
}

// containsCode reports whether an answer refuses by these codes.
func containsCode(answer string, code, errCode int) bool {
	var refused struct {
		Error struct {
			Code    int
			ErrCode int `json:"err_code"`
		}
	}
	return json.Unmarshal([]byte(answer), &refused) == nil && refused.Error.Code == code && refused.Error.ErrCode == errCode
}
