// Package travel is an example with a person in it: flight, hotel and car are booked side by side, a dear trip is
// approved by somebody, and then it is paid. Who approves has four hours; when nobody does, or says no, everything that
// was booked is given back.
//
// The three bookings are steps of other teams with inputs of their own: the plan says how to make them of a trip.
package travel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
)

// Trip is the input of a task.
type Trip struct {
	Traveller string `json:"traveller"`
	From      string `json:"from"`
	To        string `json:"to"`
	Nights    int    `json:"nights"`
	Car       bool   `json:"car"`
	Cents     int64  `json:"cents"`
}

// FlightRequest is what the airline is asked.
type FlightRequest struct {
	Passenger string `json:"passenger"`
	From      string `json:"from"`
	To        string `json:"to"`
}

// StayRequest is what the hotel is asked.
type StayRequest struct {
	Guest  string `json:"guest"`
	City   string `json:"city"`
	Nights int    `json:"nights"`
}

// Booking is the receipt of a flight, a hotel and a car.
type Booking struct {
	Number string `json:"number"`
}

// Approval is what a person answers.
type Approval struct {
	By string `json:"by"`
}

// Payment is the receipt of the payment, and the result of the task.
type Payment struct {
	ID       string   `json:"id"`
	Bookings []string `json:"bookings"`
	By       string   `json:"by"` // who approved; empty: it was not dear
}

// dear is what a trip may cost without an approval.
const dear = 100_000

// Example is the plan of a trip with its steps, and the services behind them.
type Example struct {
	Flight  *duly.Step[FlightRequest, Booking]
	Hotel   *duly.Step[StayRequest, Booking]
	Car     *duly.Step[Trip, Booking]
	Approve *duly.Signal[Trip, Approval]
	Pay     *duly.Step[Trip, Payment]
	Plan    *duly.PlanWithResult[Trip, Payment]

	flight, hotel *duly.Mapped[Trip, Booking] // as steps of a trip

	airline, hotels, cars, cards *mock.Service
}

// New makes the example.
func New(s mock.Settings) *Example {
	first, then := []duly.StepOption{duly.After()}, []duly.StepOption(nil)
	approveWithin, taskWithin, reserve := 4*time.Hour, 24*time.Hour, 10*time.Minute
	if s.CallTime > 0 {
		quick := []duly.StepOption{duly.CompleteBy(s.CallTime), duly.Backoff(50*time.Millisecond, time.Second)}
		first, then = append(first, quick...), quick
		approveWithin, taskWithin, reserve = 3*s.CallTime, 60*s.CallTime, 5*s.CallTime
	}
	e := &Example{
		airline: s.Service("airline"),
		hotels:  s.Service("hotels"),
		cars:    s.Service("cars"),
		cards:   s.Service("cards"),
	}
	e.Flight = duly.NewStep[FlightRequest, Booking]("flight", "air.book", first...)
	e.Hotel = duly.NewStep[StayRequest, Booking]("hotel", "hotel.book", first...)
	e.Car = duly.NewStep[Trip, Booking]("car", "car.book", append(first, duly.When("input.car"))...)
	e.flight = duly.With[Trip](e.Flight, "{'passenger': input.traveller, 'from': input.from, 'to': input.to}")
	e.hotel = duly.With[Trip](e.Hotel, "{'guest': input.traveller, 'city': input.to, 'nights': input.nights}")
	e.Approve = duly.NewSignal[Trip, Approval]("approve", duly.After(e.Flight, e.Hotel, e.Car),
		duly.When(fmt.Sprintf("input.cents > %d", dear)), duly.CompleteBy(approveWithin))
	e.Pay = duly.NewStep[Trip, Payment]("pay", "card.pay", then...)
	plan := duly.NewPlan("travel", 1, e.flight, e.hotel, e.Car, e.Approve, e.Pay).
		With(duly.TaskCompleteBy(taskWithin), duly.UndoReserve(reserve))
	e.Plan = duly.ResultOf(plan, e.Pay)
	return e
}

// Serve has an agent perform the steps.
func (e *Example) Serve(agent *duly.Agent) error {
	return errors.Join(
		e.Flight.Serve(agent,
			func(ctx context.Context, c duly.Call[FlightRequest]) (Booking, error) {
				return Booking{Number: c.Input.From + "-" + c.Input.To}, e.airline.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[FlightRequest, Booking]) error {
				return e.airline.Undo(ctx, u.Key)
			}),
		e.Hotel.Serve(agent,
			func(ctx context.Context, c duly.Call[StayRequest]) (Booking, error) {
				return Booking{Number: fmt.Sprintf("%s-%d", c.Input.City, c.Input.Nights)}, e.hotels.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[StayRequest, Booking]) error { return e.hotels.Undo(ctx, u.Key) }),
		e.Car.Serve(agent,
			func(ctx context.Context, c duly.Call[Trip]) (Booking, error) {
				return Booking{Number: "car-" + c.Input.To}, e.cars.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Trip, Booking]) error { return e.cars.Undo(ctx, u.Key) }),
		e.Pay.Serve(agent, e.pay,
			func(ctx context.Context, u duly.Undo[Trip, Payment]) error { return e.cards.Undo(ctx, u.Key) }),
	)
}

// pay reads what was booked and, if the trip was a dear one, who approved it.
func (e *Example) pay(ctx context.Context, c duly.Call[Trip]) (Payment, error) {
	payment := Payment{ID: "p-" + c.Task}
	for _, booked := range []func(duly.Earlier[Trip]) (Booking, error){e.flight.Result, e.hotel.Result} {
		booking, err := booked(c)
		if err != nil {
			return Payment{}, err
		}
		payment.Bookings = append(payment.Bookings, booking.Number)
	}
	if c.Input.Car {
		car, err := e.Car.Result(c)
		if err != nil {
			return Payment{}, err
		}
		payment.Bookings = append(payment.Bookings, car.Number)
	}
	if c.Input.Cents > dear {
		approval, err := e.Approve.Result(c)
		if err != nil {
			return Payment{}, err
		}
		payment.By = approval.By
	}
	return payment, e.cards.Do(ctx, c.Key)
}

// Apply stores the plan.
func (e *Example) Apply(ctx context.Context, client *duly.Client) error {
	return e.Plan.Apply(ctx, client)
}

// Submit hands in the trip of a number. Of four that are dear, two are approved at once, one is refused and one waits
// in vain.
func (e *Example) Submit(ctx context.Context, client *duly.Client, number int) (mock.Ref, error) {
	id, trip := fmt.Sprintf("trip-%d", number), Number(number)
	ref := mock.Ref{Type: e.Plan.Name(), ID: id}
	if _, err := e.Plan.Submit(ctx, client, id, trip); err != nil || trip.Cents <= dear {
		return ref, err
	}
	answer := e.Approve.Answer(Approval{By: "olga"})
	switch number % 4 {
	case 0:
		answer = e.Approve.Refuse("take the train")
	case 1:
		return ref, nil
	}
	err := e.Plan.Signal(ctx, client, id, answer)
	if errors.Is(err, duly.ErrRefused) {
		return ref, nil // the trip has been given up meanwhile
	}
	return ref, err
}

// Number is the trip of a number: two of three are dear.
func Number(n int) Trip {
	cents := int64(40_000 + n%100)
	if n%3 > 0 {
		cents += dear
	}
	return Trip{Traveller: fmt.Sprintf("traveller-%d", n%70), From: "Ballard", To: fmt.Sprintf("city-%d", n%30), Nights: 1 + n%6, Car: n%2 == 0, Cents: cents}
}

// Children are none.
func (e *Example) Children(mock.Ref) []mock.Ref { return nil }

// Books are those of the four services.
func (e *Example) Books() mock.Books {
	return mock.Books{"travel/flight": e.airline, "travel/hotel": e.hotels, "travel/car": e.cars, "travel/pay": e.cards}
}
