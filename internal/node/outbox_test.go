package node

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"duly.dev/duly/internal/submit/submittest"
	"duly.dev/duly/schema/postgres"
)

// TestOutboxCarriesEveryField: what a submission says goes into a row and comes out of it.
func TestOutboxCarriesEveryField(t *testing.T) {
	sent := submittest.Full(t)
	headers := map[string]string{}
	for name, values := range sent.Header() {
		headers[name] = values[0]
	}
	data, err := json.Marshal(headers)
	if err != nil {
		t.Fatal(err)
	}
	w := writtenOf(&postgres.OutboxRow{Number: 7, Type: sent.Type, Task: sent.ID, Input: sent.Input, Tries: 2, Headers: data, Age: sent.Ago})
	if w.Unfit != nil || w.Row != 7 || w.Tries != 2 {
		t.Errorf("%+v", w)
	}
	submittest.Same(t, "outbox", w.Request.Form, sent, nil)
}

// TestOutboxRowIsUnfit: a header that there is not is never left out; the row is refused for good, with what is wrong.
func TestOutboxRowIsUnfit(t *testing.T) {
	for headers, want := range map[string]string{
		`{"Duly-Tomorrow":"x","Duly-Labels":"a=b"}`: `"Duly-Tomorrow"`, `{"Duly-Start-At":"1h","Duly-Start-At":"2h"}`: "2 times", `{"Duly-Start-At":`: "JSON", `5`: "object",
	} {
		w := writtenOf(&postgres.OutboxRow{Headers: []byte(headers)})
		if w.Unfit == nil || w.Unfit.Retryable() || w.Unfit.Code != 400 || !strings.Contains(w.Unfit.Description, want) {
			t.Errorf("%s: %+v, want it refused with %s", headers, w.Unfit, want)
		}
	}
}

// TestOutboxStandingIsOfNow: what was wrong with an outbox is not told any more once it cannot be counted what stands in it,
// nor is what was counted before.
func TestOutboxStandingIsOfNow(t *testing.T) {
	o := &outbox{name: "shop"}
	o.counted(postgres.OutboxStanding{Waiting: 3, Refused: 1, First: &postgres.OutboxRow{Task: "t1", Type: "order", Code: 409, Reason: "id is a task already"}}, nil)
	if err := o.trouble(); !o.known || err == nil || !strings.Contains(err.Error(), `task "t1" of type "order": id is a task already (409)`) {
		t.Errorf("known %v: %v", o.known, err)
	}
	o.counted(postgres.OutboxStanding{}, errors.New("the database is away"))
	if err := o.trouble(); o.known || err != nil {
		t.Errorf("known %v: %v", o.known, err)
	}
}
