// Package provisioning is an example with a child for each element of a list: a company gets its accounts, at most ten
// at a time. Each account is a task of its own, of three steps; when one of a company's accounts cannot be made, all of
// them are taken back.
package provisioning

import (
	"context"
	"errors"
	"fmt"
	"time"

	"duly.dev/duly"
	"duly.dev/duly/examples/mock"
)

// Company is the input of a task.
type Company struct {
	Name     string    `json:"name"`
	Accounts []Account `json:"accounts"`
}

// Account is the input of a child.
type Account struct {
	User  string `json:"user"`
	Admin bool   `json:"admin"`
}

// Mailbox is the receipt of a mailbox.
type Mailbox struct {
	Address string `json:"address"`
}

// Licence is the receipt of a licence.
type Licence struct {
	Key string `json:"key"`
}

// Quota is what the check of the contract finds.
type Quota struct {
	Accounts int `json:"accounts"`
}

// Done is the answer of a check that finds nothing.
type Done struct{}

// AccountsMax is how many accounts a company may have.
const AccountsMax = 10_000

// Example is the plans of a company and of an account with their steps, and the services behind them.
type Example struct {
	Mailbox *duly.Step[Account, Mailbox]
	Licence *duly.Step[Account, Licence]
	Rights  *duly.Check[Account, Done]
	Account *duly.PlanWithResult[Account, Mailbox]

	Quota    *duly.Check[Company, Quota]
	Accounts *duly.Each[Company]
	Announce *duly.Check[Company, Done]
	Company  *duly.Plan[Company]

	mailboxes, licences *mock.Service
}

// New makes the example.
func New(s mock.Settings) *Example {
	var call []duly.StepOption
	accountWithin, companyWithin := 10*time.Minute, 6*time.Hour
	if s.CallTime > 0 {
		call = append(call, duly.CompleteBy(s.CallTime), duly.Backoff(50*time.Millisecond, time.Second))
		accountWithin, companyWithin = 30*s.CallTime, 120*s.CallTime
	}
	e := &Example{
		mailboxes: s.Service("mailboxes"),
		licences:  s.Service("licences"),
	}
	e.Mailbox = duly.NewStep[Account, Mailbox]("mailbox", "mail.create", append(call, duly.After())...)
	e.Licence = duly.NewStep[Account, Licence]("licence", "licence.assign", append(call, duly.After())...)
	e.Rights = duly.NewCheck[Account, Done]("rights", "directory.check", duly.After(e.Mailbox, e.Licence), duly.When("input.admin"))
	account := duly.NewPlan("account", 1, e.Mailbox, e.Licence, e.Rights).With(duly.TaskCompleteBy(accountWithin))
	e.Account = duly.ResultOf(account, e.Mailbox)

	e.Quota = duly.NewCheck[Company, Quota]("quota", "contract.check")
	e.Accounts = duly.NewEach[Company]("accounts", e.Account, duly.Elements("input.accounts", AccountsMax), duly.Parallel(10))
	e.Announce = duly.NewCheck[Company, Done]("announce", "mail.announce")
	e.Company = duly.NewPlan("company", 1, e.Quota, e.Accounts, e.Announce).With(duly.TaskCompleteBy(companyWithin))
	return e
}

// Serve has an agent perform the steps.
func (e *Example) Serve(agent *duly.Agent) error {
	return errors.Join(
		e.Mailbox.Serve(agent,
			func(ctx context.Context, c duly.Call[Account]) (Mailbox, error) {
				return Mailbox{Address: c.Input.User + "@example.org"}, e.mailboxes.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Account, Mailbox]) error { return e.mailboxes.Undo(ctx, u.Key) }),
		e.Licence.Serve(agent,
			func(ctx context.Context, c duly.Call[Account]) (Licence, error) {
				return Licence{Key: "l-" + c.Task}, e.licences.Do(ctx, c.Key)
			},
			func(ctx context.Context, u duly.Undo[Account, Licence]) error { return e.licences.Undo(ctx, u.Key) }),
		e.Rights.Serve(agent, func(context.Context, duly.Call[Account]) (Done, error) { return Done{}, nil }),
		e.Quota.Serve(agent, func(_ context.Context, c duly.Call[Company]) (Quota, error) {
			if n := len(c.Input.Accounts); n == 0 || n > AccountsMax {
				return Quota{}, duly.Refuse(fmt.Errorf("company %s asks for %d accounts, want 1 to %d", c.Input.Name, n, AccountsMax))
			}
			return Quota{Accounts: len(c.Input.Accounts)}, nil
		}),
		e.Announce.Serve(agent, func(context.Context, duly.Call[Company]) (Done, error) { return Done{}, nil }),
	)
}

// Apply stores both plans.
func (e *Example) Apply(ctx context.Context, client *duly.Client) error {
	return errors.Join(e.Account.Apply(ctx, client), e.Company.Apply(ctx, client))
}

// Submit hands in the company of a number.
func (e *Example) Submit(ctx context.Context, client *duly.Client, number int) (mock.Ref, error) {
	id := fmt.Sprintf("company-%d", number)
	_, err := e.Company.Submit(ctx, client, id, Number(number))
	return mock.Ref{Type: e.Company.Name(), ID: id}, err
}

// accounts is how many the company of a number has.
func accounts(n int) int { return 3 + n%10 }

// Number is the company of a number.
func Number(n int) Company {
	c := Company{Name: fmt.Sprintf("company-%d", n)}
	for i := range accounts(n) {
		c.Accounts = append(c.Accounts, Account{User: fmt.Sprintf("user-%d-%d", n, i), Admin: i == 0})
	}
	return c
}

// Children are the accounts of a company.
func (e *Example) Children(of mock.Ref) (children []mock.Ref) {
	if of.Type != e.Company.Name() {
		return nil
	}
	number := 0
	if _, err := fmt.Sscanf(of.ID, "company-%d", &number); err != nil {
		return nil
	}
	for i := range accounts(number) {
		children = append(children, mock.Ref{Type: e.Account.Name(), ID: duly.ElementID(of.ID, e.Accounts, i)})
	}
	return children
}

// Books are those of the two services.
func (e *Example) Books() mock.Books {
	return mock.Books{"account/mailbox": e.mailboxes, "account/licence": e.licences}
}
