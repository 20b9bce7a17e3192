package travel_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/travel"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is the example on an engine.
func desk(t *testing.T) (*travel.Example, *dulytest.Engine) {
	t.Helper()
	e := travel.New(mock.Settings{})
	agent, err := duly.NewAgent(nil)
	if err == nil {
		err = e.Serve(agent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e, dulytest.NewEngine(t, agent)
}

var dear = travel.Trip{Traveller: "olga", From: "Ballard", To: "Ghent", Nights: 3, Car: true, Cents: 250_000}

func TestApprovedTrip(t *testing.T) {
	e, engine := desk(t)
	task := dulytest.Submit(engine, e.Plan, "trip-1", dear)
	engine.Run()
	task.WantState(duly.StatePending) // it waits for a person
	engine.Advance(3 * time.Hour)
	if err := dulytest.Signal(engine, e.Plan.Plan, "trip-1", e.Approve.Answer(travel.Approval{By: "ines"})); err != nil {
		t.Fatal(err)
	}
	engine.Run()
	task.WantProcessed()
	var payment travel.Payment
	err := task.Result(&payment)
	if err != nil || payment.By != "ines" || !slices.Equal(payment.Bookings, []string{"Ballard-Ghent", "Ghent-3", "car-Ghent"}) {
		t.Errorf("%+v: %v", payment, err)
	}
	if n := e.Books().Standing(); n != 4 {
		t.Errorf("%d effects stand, want 4", n)
	}
}

func TestCheapTripNeedsNobody(t *testing.T) {
	e, engine := desk(t)
	cheap := dear
	cheap.Cents, cheap.Car = 40_000, false
	task := dulytest.Submit(engine, e.Plan, "trip-1", cheap)
	engine.Run()
	task.WantProcessed()
	if task.Step(e.Approve) != "skipped" || task.Step(e.Car) != "skipped" || e.Books().Standing() != 3 {
		t.Errorf("approve is %s, car %s, %d effects stand", task.Step(e.Approve), task.Step(e.Car), e.Books().Standing())
	}
}

// What was booked is given back when the person says no, and when nobody says anything.
func TestTripThatIsNotApproved(t *testing.T) {
	e, engine := desk(t)
	refused, forgotten := dulytest.Submit(engine, e.Plan, "trip-1", dear), dulytest.Submit(engine, e.Plan, "trip-2", dear)
	engine.Run()
	if n := e.Books().Standing(); n != 6 {
		t.Errorf("%d effects stand, want 6", n)
	}
	if err := dulytest.Signal(engine, e.Plan.Plan, "trip-1", e.Approve.Refuse("take the train")); err != nil {
		t.Fatal(err)
	}
	engine.Run()
	refused.WantState(duly.StateUndone)
	forgotten.WantState(duly.StatePending)
	engine.Advance(4 * time.Hour)
	engine.Run()
	forgotten.WantState(duly.StateUndone)
	if n := e.Books().Standing(); n != 0 || refused.Reason() != "take the train" {
		t.Errorf("%d effects stand; %s", n, refused.Reason())
	}
}

// A hotel that is full gives flight and car back, and nobody is asked.
func TestHotelIsFull(t *testing.T) {
	e, engine := desk(t)
	engine.On(e.Hotel).Fail(duly.Refuse(errors.New("no room in Ghent")))
	task := dulytest.Submit(engine, e.Plan, "trip-1", dear)
	engine.Run()
	task.WantState(duly.StateUndone)
	if n := e.Books().Standing(); n != 0 || task.Step(e.Approve) != "skipped" {
		t.Errorf("%d effects stand, approve is %s", n, task.Step(e.Approve))
	}
}
