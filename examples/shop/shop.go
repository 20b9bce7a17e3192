// Package shop is an example with something to operate: a shop's orders, of which a share meets trouble that an
// operator can see and mend. `duly dev --demo` runs it.
//
// An order reserves stock, has a card authorized and charged, books a courier and prints a label. Out of 100 orders
//
//   - 4 are refused because an item is not in stock: undone, nothing to do;
//   - 3 are refused by the card's bank: undone, the reservation is taken back; of one of these the warehouse forgets to,
//     which its books tell (`duly books`) and a second undo mends;
//   - 4 meet a payment gateway that is down, until it is mended: in error, a resubmit works once it is back;
//   - 2 have an address that no courier knows: in error until the input is edited;
//   - 1 is refused by the bank, and its stock cannot be taken back: in error, its undo incomplete.
//
// A return shows the other kinds of step: it waits for its parcel to arrive, has each item inspected in a task of its own,
// waits for a person to approve it if it is worth more than 100, and is paid back; `duly list --waits signal` finds those
// that wait for an answer.
//
// A statement waits for an agent that does not run: it shows what misses its deadline next.
package shop

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// Order is the input of an order.
type Order struct {
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
	Cents    int64  `json:"cents"`
	Address  string `json:"address"`
}

// Reserved is what the warehouse answers.
type Reserved struct {
	Reservation string `json:"reservation"`
}

// Authorized is what the card's bank answers.
type Authorized struct {
	Code string `json:"code"`
}

// Charged is what the payment service answers.
type Charged struct {
	Payment string `json:"payment"`
	Cents   int64  `json:"cents"`
}

// Booked is what the courier answers.
type Booked struct {
	Parcel string `json:"parcel"`
}

// Printed is what the printer of labels answers.
type Printed struct {
	Pages int `json:"pages"`
}

// Statement is the input of a monthly statement.
type Statement struct {
	Customer string `json:"customer"`
	Month    string `json:"month"`
}

// Return is the input of a return: what a customer sends back.
type Return struct {
	Customer string   `json:"customer"`
	Items    []string `json:"items"`
	Cents    int64    `json:"cents"`
}

// Inspected is what the warehouse says of an item that came back.
type Inspected struct {
	Grade string `json:"grade"`
}

// Approval is what a person answers about a return.
type Approval struct {
	By string `json:"by"`
}

// noAddress is an address that no courier knows.
const noAddress = "somewhere"

// Shop is the plans and the services behind their steps.
type Shop struct {
	Orders     *duly.Plan[Order]
	Statements *duly.Plan[Statement]
	Inspected  *duly.Plan[string] // one item of a return
	Returns    *duly.Plan[Return]

	inspect   *duly.Check[string, Inspected]
	approve   *duly.Signal[Return, Approval]
	refund    *duly.Check[Return, Charged]
	reserve   *duly.Step[Order, Reserved]
	authorize *duly.Check[Order, Authorized]
	charge    *duly.Step[Order, Charged]
	courier   *duly.Step[Order, Booked]
	label     *duly.Check[Order, Printed]

	mended atomic.Bool // the payment gateway is back

	stock, payments, parcels ledger // what the services have done
}

// New makes a shop whose payment gateway is down.
func New() *Shop {
	s := &Shop{
		reserve:   duly.NewStep[Order, Reserved]("reserve", "warehouse.reserve"),
		authorize: duly.NewCheck[Order, Authorized]("authorize", "payment.authorize"),
		charge: duly.NewStep[Order, Charged]("charge", "payment.charge",
			duly.CompleteBy(5*time.Second), duly.Attempts(2), duly.Backoff(100*time.Millisecond, time.Second), duly.OnExhausted(duly.PolicyError)),
		courier: duly.NewStep[Order, Booked]("courier", "courier.book",
			duly.Attempts(2), duly.Backoff(100*time.Millisecond, time.Second), duly.OnExhausted(duly.PolicyError)),
		label: duly.NewCheck[Order, Printed]("label", "label.print"),
	}
	s.Orders = duly.NewPlan("order", 1, s.reserve, s.authorize, s.charge, s.courier, s.label).With(duly.TaskCompleteBy(time.Hour))
	s.inspect = duly.NewCheck[string, Inspected]("inspect", "warehouse.inspect")
	s.Inspected = duly.NewPlan("inspection", 1, s.inspect).With(duly.TaskCompleteBy(time.Hour))
	arrive := duly.NewWait[Return]("arrive", duly.For(5*time.Second))
	items := duly.NewEach[Return]("items", s.Inspected, duly.Elements("input.items", 20), duly.After(arrive))
	s.approve = duly.NewSignal[Return, Approval]("approve", duly.AskRequired(), duly.CompleteBy(4*time.Hour), duly.When("input.cents > 10000"), duly.After(items))
	// Money that was paid back is not taken again, so there is no undo: a refund that stays unclear is looked at by a person.
	s.refund = duly.NewCheck[Return, Charged]("refund", "payment.refund", duly.After(s.approve), duly.OnExhausted(duly.PolicyError))
	s.Returns = duly.NewPlan("return", 1, arrive, items, s.approve, s.refund).With(duly.TaskCompleteBy(24 * time.Hour))
	post := duly.NewCheck[Statement, Printed]("post", "mail.post")
	s.Statements = duly.NewPlan("statement", 1, post).With(duly.TaskCompleteBy(5*time.Minute + 10*time.Second)) // near after 10 s: the console shows what ends within 5 minutes
	return s
}

// Keep has the services keep their books in files of a folder, and read what is there. Close ends that.
func (s *Shop) Keep(dir string) error {
	for name, l := range map[string]*ledger{"warehouse": &s.stock, "payment": &s.payments, "courier": &s.parcels} {
		if err := l.open(filepath.Join(dir, "shop-"+name+".books")); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files of Keep, after the agent has ended.
func (s *Shop) Close() error {
	return errors.Join(s.stock.file.Close(), s.payments.file.Close(), s.parcels.file.Close())
}

// Mend brings the payment gateway back.
func (s *Shop) Mend() { s.mended.Store(true) }

// Run stores the plans, serves the steps of orders and, every so often, submits an order, until ctx ends. The
// gateway is back after mendAfter. Error: the connection, or a plan that is stored with another content.
func (s *Shop) Run(ctx context.Context, nc *nats.Conn, namespace string, every, mendAfter time.Duration, log *slog.Logger) error {
	agent, err := s.Agent(nc, duly.Namespace(namespace), duly.Log(log))
	if err != nil {
		return err
	}
	client, err := duly.NewClient(nc, duly.Namespace(namespace), duly.Actor("shop"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- agent.Run(ctx) }()
	err = s.submit(ctx, client, every, mendAfter)
	cancel()
	if agentErr := <-served; err == nil {
		err = agentErr
	}
	return err
}

// Agent serves the steps of orders.
func (s *Shop) Agent(nc *nats.Conn, options ...duly.AgentOption) (*duly.Agent, error) {
	options = append(options, duly.WithBooks("warehouse.reserve", &s.stock), duly.WithBooks("payment.charge", &s.payments), duly.WithBooks("courier.book", &s.parcels))
	agent, err := duly.NewAgent(nc, options...)
	if err != nil {
		return nil, err
	}
	for _, serve := range []func(*duly.Agent) error{s.serveReserve, s.serveAuthorize, s.serveCharge, s.serveCourier, s.serveLabel, s.serveReturns} {
		if err := serve(agent); err != nil {
			return nil, err
		}
	}
	return agent, nil
}

func (s *Shop) serveReserve(agent *duly.Agent) error {
	return s.reserve.Serve(agent,
		func(_ context.Context, c duly.Call[Order]) (Reserved, error) {
			if share(c.Task) < 4 {
				return Reserved{}, duly.Refuse(fmt.Errorf("item %s is not in stock in warehouse B", c.Input.Item))
			}
			return Reserved{Reservation: "r-" + c.Task}, s.stock.do(c.Key, time.Now())
		},
		func(_ context.Context, u duly.Undo[Order, Reserved]) error {
			if share(u.Task) == 13 {
				return duly.Refuse(fmt.Errorf("reservation r-%s has been picked and packed", u.Task))
			}
			return s.stock.undo(u.Key, share(u.Task) == 6)
		})
}

func (s *Shop) serveAuthorize(agent *duly.Agent) error {
	return s.authorize.Serve(agent, func(_ context.Context, c duly.Call[Order]) (Authorized, error) {
		if n := share(c.Task); n >= 4 && n < 7 || n == 13 {
			return Authorized{}, duly.Refuse(fmt.Errorf("card declined by its bank: code %d", 51+n%3))
		}
		return Authorized{Code: "a-" + c.Task}, nil
	})
}

func (s *Shop) serveCharge(agent *duly.Agent) error {
	return s.charge.Serve(agent,
		func(_ context.Context, c duly.Call[Order]) (Charged, error) {
			if n := share(c.Task); n >= 7 && n < 11 && !s.mended.Load() {
				return Charged{}, fmt.Errorf("payment gateway answered 502 to request %s", c.Key)
			}
			return Charged{Payment: "p-" + c.Task, Cents: c.Input.Cents}, s.payments.do(c.Key, time.Now())
		},
		func(_ context.Context, u duly.Undo[Order, Charged]) error { return s.payments.undo(u.Key, false) })
}

func (s *Shop) serveCourier(agent *duly.Agent) error {
	return s.courier.Serve(agent,
		func(_ context.Context, c duly.Call[Order]) (Booked, error) {
			if strings.TrimSpace(c.Input.Address) == noAddress {
				return Booked{}, fmt.Errorf("address %q is not known", c.Input.Address)
			}
			return Booked{Parcel: "c-" + c.Task}, s.parcels.do(c.Key, time.Now())
		},
		func(_ context.Context, u duly.Undo[Order, Booked]) error { return s.parcels.undo(u.Key, false) })
}

func (s *Shop) serveLabel(agent *duly.Agent) error {
	return s.label.Serve(agent, func(context.Context, duly.Call[Order]) (Printed, error) { return Printed{Pages: 1}, nil })
}

func (s *Shop) serveReturns(agent *duly.Agent) error {
	if err := s.inspect.Serve(agent, func(context.Context, duly.Call[string]) (Inspected, error) { return Inspected{Grade: "as new"}, nil }); err != nil {
		return err
	}
	return s.refund.Serve(agent, func(_ context.Context, c duly.Call[Return]) (Charged, error) {
		return Charged{Payment: "b-" + c.Task, Cents: c.Input.Cents}, nil
	})
}

// ReturnNumber makes the i-th return: two of three are worth more than a refund that needs no person.
func ReturnNumber(i int) Return {
	r := Return{Customer: fmt.Sprintf("customer-%d", i), Cents: 4_900}
	if i%3 != 2 {
		r.Cents = 12_900 + int64(i)
	}
	for k := range 2 + i%3 {
		r.Items = append(r.Items, fmt.Sprintf("item-%d", 10*i+k))
	}
	return r
}

// submit stores the plans and submits orders, and now and then a statement and a return.
func (s *Shop) submit(ctx context.Context, client *duly.Client, every, mendAfter time.Duration) error {
	if err := s.Orders.Apply(ctx, client); err != nil {
		return err
	}
	if err := s.Statements.Apply(ctx, client); err != nil {
		return err
	}
	if err := s.Inspected.Apply(ctx, client); err != nil {
		return err
	}
	if err := s.Returns.Apply(ctx, client); err != nil {
		return err
	}
	mend := time.AfterFunc(mendAfter, s.Mend)
	defer mend.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	run := time.Now().UTC().Format("0102-150405")
	for i := 1; ; i++ {
		id := fmt.Sprintf("order-%s-%d", run, i)
		if _, err := s.Orders.Submit(ctx, client, id, OrderNumber(id)); err != nil && ctx.Err() == nil {
			return err
		}
		if i%60 == 1 {
			statement := Statement{Customer: fmt.Sprintf("customer-%d", i), Month: "2026-10"}
			if _, err := s.Statements.Submit(ctx, client, fmt.Sprintf("statement-%s-%d", run, i), statement); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if i%60 == 1 {
			if _, err := s.Returns.Submit(ctx, client, fmt.Sprintf("return-%s-%d", run, i/60), ReturnNumber(i/60)); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// share is where an order stands among 100 of its like: always the same for an id.
func share(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() % 100
}

// OrderNumber makes the order of an id: always the same.
func OrderNumber(id string) Order {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	n := h.Sum64()
	o := Order{
		Customer: fmt.Sprintf("customer-%d", n%5000), Item: fmt.Sprintf("item-%d", n>>16%400), Quantity: int(1 + n>>32%4),
		Cents: int64(499 + n>>8%20_000), Address: fmt.Sprintf("%d Harbour Road, Ballard", 1+n>>24%200),
	}
	if s := share(id); s == 11 || s == 12 {
		o.Address = noAddress
	}
	return o
}
