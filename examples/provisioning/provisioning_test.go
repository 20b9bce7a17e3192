package provisioning_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"duly.dev/duly"
	"duly.dev/duly/dulytest"
	"duly.dev/duly/examples/mock"
	"duly.dev/duly/examples/provisioning"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is the example on an engine.
func desk(t *testing.T) (*provisioning.Example, *dulytest.Engine) {
	t.Helper()
	e := provisioning.New(mock.Settings{})
	agent, err := duly.NewAgent(nil)
	if err == nil {
		err = e.Serve(agent)
	}
	if err != nil {
		t.Fatal(err)
	}
	engine := dulytest.NewEngine(t, agent)
	engine.Apply(e.Account)
	return e, engine
}

func TestCompanyGetsItsAccounts(t *testing.T) {
	e, engine := desk(t)
	task := dulytest.Submit(engine, e.Company, "company-7", provisioning.Number(7))
	engine.Run()
	task.WantProcessed()
	var counts duly.Counts
	if err := task.StepResult(e.Accounts, &counts); err != nil || counts != (duly.Counts{Done: 10}) {
		t.Errorf("%+v: %v", counts, err)
	}
	admin, user := engine.Task(duly.ElementID("company-7", e.Accounts, 0)), engine.Task(duly.ElementID("company-7", e.Accounts, 1))
	if admin.Step(e.Rights) != "done" || user.Step(e.Rights) != "skipped" {
		t.Errorf("rights of the admin are %s, of a user %s", admin.Step(e.Rights), user.Step(e.Rights))
	}
	var mailbox provisioning.Mailbox
	if err := admin.Result(&mailbox); err != nil || mailbox.Address != "user-7-0@example.org" {
		t.Errorf("%+v: %v", mailbox, err)
	}
	if n, want := e.Books().Standing(), 20; n != want || len(e.Children(mock.Ref{Type: "company", ID: "company-7"})) != len(task.Children()) {
		t.Errorf("%d effects stand of %d children, want %d", n, len(task.Children()), want)
	}
}

// One account that cannot be made takes all of the company's back.
func TestOneAccountFails(t *testing.T) {
	e, engine := desk(t)
	engine.On(e.Licence).Task(duly.ElementID("company-7", e.Accounts, 4)).Fail(duly.Refuse(errors.New("no licence left")))
	task := dulytest.Submit(engine, e.Company, "company-7", provisioning.Number(7))
	engine.Run()
	task.WantUndone(e.Accounts)
	if n := e.Books().Standing(); n != 0 || !strings.Contains(task.Reason(), "no licence left") {
		t.Errorf("%d effects stand; %s", n, task.Reason())
	}
	if err := engine.Resubmit("company-7", "licences bought"); err != nil {
		t.Fatal(err)
	}
	engine.Run()
	task.WantProcessed() // the rule was for the children of the first round
}

func TestCompanyWithoutAccounts(t *testing.T) {
	e, engine := desk(t)
	task := dulytest.Submit(engine, e.Company, "company-0", provisioning.Company{Name: "none"})
	engine.Run()
	task.WantUndone()
}
