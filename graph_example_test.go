package duly_test

import (
	"errors"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
)

// What the examples of plans share: a stay in a city and its flight.
type (
	// Stay is the input of a trip.
	Stay struct {
		City    string `json:"city"`
		Arrival string `json:"arrival"`
		Guests  []Seat `json:"guests"`
		Cents   int    `json:"cents"`
	}
	// Leg is the input of a flight.
	Leg struct {
		To string `json:"to"`
	}
	// Seat is the receipt of a flight, and a guest's seat.
	Seat struct {
		Row int `json:"row"`
	}
	// Approval is what a person answers.
	Approval struct {
		By string `json:"by"`
	}
)

// show prints an example's engine, which stands in for a server.
type show struct{}

func (show) Helper() {}

func (show) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (show) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A wait takes no time of anything but the task's.
func ExampleNewWait() {
	remind := duly.NewWait[Stay]("remind", duly.Until("timestamp(input.arrival) - duration('24h')"))
	mail := duly.NewCheck[Stay, bool]("mail", "mail.send")
	plan := duly.NewPlan("reminder", 1, remind, mail).With(duly.TaskCompleteBy(30 * 24 * time.Hour))

	engine := dulytest.NewEngine(show{})
	engine.On(mail).Answer(true)
	task := dulytest.Submit(engine, plan, "stay-1", Stay{City: "Ghent", Arrival: "2030-01-08T12:00:00Z"})
	engine.Run()
	fmt.Println(task.State(), engine.Now().Format(time.DateTime))
	// Output: processed 2030-01-07 12:00:00
}

// A signal is a step that somebody answers.
func ExampleNewSignal() {
	book := duly.NewStep[Stay, Seat]("book", "hotel.book")
	approve := duly.NewSignal[Stay, Approval]("approve", duly.CompleteBy(4*time.Hour), duly.When("input.cents > 100000"))
	plan := duly.NewPlan("stay", 1, book, approve).With(duly.TaskCompleteBy(24 * time.Hour))

	engine := dulytest.NewEngine(show{})
	engine.On(book).Answer(Seat{Row: 4})
	for id, answer := range map[string]duly.Answer[Stay]{"stay-1": approve.Answer(Approval{By: "olga"}), "stay-2": approve.Refuse("too dear")} {
		dulytest.Submit(engine, plan, id, Stay{Cents: 250_000})
		engine.Run() // it waits for the answer
		if err := dulytest.Signal(engine, plan, id, answer); err != nil {
			fmt.Println(err)
		}
	}
	late := dulytest.Submit(engine, plan, "stay-3", Stay{Cents: 250_000})
	cheap := dulytest.Submit(engine, plan, "stay-4", Stay{Cents: 90_000})
	engine.Run()
	engine.AdvanceTo(late.Deadline())
	for _, task := range []*dulytest.Task{engine.Task("stay-1"), engine.Task("stay-2"), late, cheap} {
		fmt.Println(task.ID(), task.State(), "approve", task.Step(approve))
	}
	// Output:
	// stay-1 processed approve done
	// stay-2 undone approve failed
	// stay-3 undone approve failed
	// stay-4 processed approve skipped
}

// A child is a task of another plan, and is undone with its parent.
func ExampleNewChild() {
	reserve := duly.NewStep[Leg, Seat]("reserve", "air.reserve")
	bookFlight := duly.ResultOf(duly.NewPlan("flight", 1, reserve), reserve)

	remind := duly.NewCheck[Stay, bool]("remind", "mail.send")
	flight := duly.NewChild("flight", bookFlight)
	travel := duly.NewPlan("travel", 1, duly.With[Stay](flight, "{'to': input.city}"), remind)

	engine := dulytest.NewEngine(show{})
	engine.Apply(bookFlight)
	engine.On(reserve).Answer(Seat{Row: 12})
	engine.On(remind).Fail(duly.Refuse(errors.New("no address")))
	trip := dulytest.Submit(engine, travel, "trip-1", Stay{City: "Ghent"})
	engine.Run()
	child := engine.Task(duly.ChildID("trip-1", flight))
	var seat Seat
	fmt.Println(trip.State(), trip.StepResult(flight, &seat), seat.Row, child.ID(), child.State())
	// Output: undone <nil> 12 trip-1~flight undone
}

// An each has a child for each element of a list.
func ExampleNewEach() {
	seat := duly.NewStep[Seat, Seat]("seat", "air.seat")
	guest := duly.NewPlan("guest", 1, seat)

	guests := duly.NewEach[Stay]("guests", guest, duly.Elements("input.guests", 100), duly.Parallel(2), duly.FailuresMax(1))
	party := duly.NewPlan("party", 1, guests)

	engine := dulytest.NewEngine(show{})
	engine.Apply(guest)
	engine.On(seat).Answer(Seat{})
	engine.On(seat).Task(duly.ElementID("party-1", guests, 1)).Fail(duly.Refuse(errors.New("row 13 is none")))
	task := dulytest.Submit(engine, party, "party-1", Stay{Guests: []Seat{{Row: 12}, {Row: 13}, {Row: 14}}})
	engine.Run()
	var counts duly.Counts
	fmt.Println(task.State(), task.StepResult(guests, &counts), counts.Done, counts.Failed)
	// Output: processed <nil> 2 1
}

// A step of another team's takes an input of its own: the plan says how to make it.
func ExampleWith() {
	send := duly.NewStep[Leg, Seat]("send", "parcel.send")
	to := duly.With[Stay](send, "{'to': input.city}")
	note := duly.NewCheck[Stay, string]("note", "desk.note", duly.Uses(to))
	plan := duly.NewPlan("gift", 1, to, note)
	fmt.Println(plan.Name(), to.Name())
	// Output: gift send
}

// The result of a task is that of one of its steps, or what an expression makes of several.
func ExampleResultAs() {
	quote := duly.NewCheck[Leg, Seat]("quote", "air.quote")
	row := duly.ResultAs[int](duly.NewPlan("quote", 1, quote).With(duly.Result("int(results.quote.row) + 1")))

	engine := dulytest.NewEngine(show{})
	engine.On(quote).Answer(Seat{Row: 12})
	task := dulytest.Submit(engine, row, "quote-1", Leg{To: "Ghent"})
	engine.Run()
	var next int
	fmt.Println(task.Result(&next), next)
	// Output: <nil> 13
}
