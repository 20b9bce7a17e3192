package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/internal/api/apitest"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planfile"
)

// The same wrong plan is refused by the same sentence at every door: in a file, by the Go client, over HTTP and over NATS.
// Each says before it which step is meant, a file its place too.
//
// covers: W12
func TestSamePlanAtEveryDoor(t *testing.T) {
	c := startClockwork(t)
	handler, err := apitest.New().Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	handler = apitest.As(operate.RoleOperator, handler)
	check := func(plan string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/v1/plans/order/check", strings.NewReader(`{"plan":`+plan+`}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var problem struct {
			Status int
			Detail string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != 400 {
			t.Errorf("over HTTP: %d %s", w.Code, w.Body)
		}
		return problem.Detail
	}
	pay := duly.NewCheck[int, int]("pay", "a")
	order := func(steps ...duly.StepOf[int]) *duly.Plan[int] {
		return duly.NewPlan("order", 1, steps...).With(duly.TaskCompleteBy(time.Hour))
	}
	for _, x := range []struct {
		name  string
		steps string // of the wire and of the file, where durations are text
		of    *duly.Plan[int]
		step  string
		want  string
	}{
		{"unknown step in uses", `{"name":"ship","agent":"a"},{"name":"pay","agent":"a","after":["ship"],"uses":["shipp"]}`, nil, "pay", `uses names "shipp", which is no step; there is ship`},
		{"cycle", `{"name":"pay","agent":"a","after":["ship"]},{"name":"ship","agent":"a","after":["pay"]}`, nil, "pay",
			"the steps come after each other in a circle: pay after ship after pay"},
		{"CEL that is none", `{"name":"pay","agent":"a","when":"inptu.x"}`, order(duly.NewCheck[int, int]("pay", "a", duly.When("inptu.x"))), "pay",
			`there is no "inptu": is input meant?`},
		{"when is no boolean", `{"name":"pay","agent":"a","when":"'yes'"}`, order(duly.NewCheck[int, int]("pay", "a", duly.When("'yes'"))), "pay",
			"it gives a string, want true or false"},
		{"arithmetic on the data", `{"name":"pay","agent":"a","when":"input.cents / 100 > 2"}`, order(duly.NewCheck[int, int]("pay", "a", duly.When("input.cents / 100 > 2"))), "pay",
			"what type input.cents has depends on the data: say int(input.cents) or double(input.cents), or give the plan an input_schema in which it is an integer"},
		{"each without a bound", `{"name":"rows","kind":"each","child":"tick","elements":"input","elements_max":0}`, nil, "rows",
			"elements_max is 0, want 1 or more, or nothing said"},
		{"each of too many", `{"name":"rows","kind":"each","child":"tick","elements":"input","elements_max":200000}`, order(duly.NewEach[int]("rows", c.plan, duly.Elements("input", 200_000))), "rows",
			"200000, want 1 to 100000"}, // in Go the option is named as it is written
		{"child of itself", `{"name":"again","kind":"task","child":"order"}`, order(pay, duly.NewChild("again", order(pay))), "again",
			"child is order, the plan itself: its tasks would have tasks without end"},
		{"budget larger than the deadline", `{"name":"pay","agent":"a","complete_by_ms":7200000}`, order(duly.NewCheck[int, int]("pay", "a", duly.CompleteBy(2*time.Hour))), "pay",
			"complete_by is 2h0m0s, want at most the task's of 1h0m0s"},
		{"child of no type", `{"name":"sub","kind":"task","child":"tock"}`, order(duly.NewChild("sub", duly.NewPlan("tock", 1, pay))), "sub",
			`child is "tock", and no plan of that name is stored: apply it first`},
	} {
		wired := `{"name":"order","version":1,"complete_by_ms":3600000,"steps":[` + x.steps + `]}`
		texts := map[string]string{}
		stored := x.name == "child of no type" // only where a plan is applied it is known which are stored
		if !stored {
			texts["HTTP"] = check(wired)
		}
		answer := c.applyPlan([]byte(wired))
		if answer.Error == nil || answer.Error.Code != 400 {
			t.Errorf("%s: over NATS %+v", x.name, answer)
			continue
		}
		texts["NATS"] = answer.Error.Description
		if x.of != nil {
			err := x.of.Apply(t.Context(), c.client)
			if err == nil {
				t.Errorf("%s: the Go client applies it", x.name)
				continue
			}
			texts["Go"] = err.Error()
		}
		_, err := planfile.Read("order.json", []byte(strings.NewReplacer(`_ms":3600000`, `":"1h"`, `_ms":7200000`, `":"2h"`).Replace(wired)), 1<<20)
		switch {
		case err != nil:
			texts["file"] = err.Error()
		case !stored:
			t.Errorf("%s: the file is taken", x.name)
		}
		for door, text := range texts {
			line, _, _ := strings.Cut(text, "\n")
			if !strings.Contains(line, x.want) || !strings.Contains(line, "step "+x.step+": ") && x.name != "cycle" && door != "file" {
				t.Errorf("%s: %s says\n%s\nwant %s", x.name, door, text, x.want)
			}
		}
	}
}
