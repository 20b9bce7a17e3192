// Package duly runs tasks made of several steps. A task is done by its
// deadline, or it is undone: it succeeds or fails as a whole.
//
// # A task
//
// An order is paid for, packed and sent. Each of these is a call to some
// service; any of them can be refused, fail, hang, or take effect without its
// answer ever arriving. Duly calls the steps in order, tries again what may be
// tried again, and when the task cannot be finished in time calls the undo of
// every step that has, or may have, left something behind. All of this survives
// the crash of any process that takes part.
//
// # Three things to write
//
// The steps, defined once and shared by the program that submits and the one that
// performs, so that the two cannot disagree about a type:
//
//	var (
//		Credit = duly.NewCheck[Order, Score]("credit", "credit.check")
//		Charge = duly.NewStep[Order, Receipt]("charge", "payment.charge", duly.CompleteBy(2*time.Second))
//		Buy    = duly.NewPlan("order", 1, Credit, Charge)
//	)
//
// A [Check] leaves nothing behind; a [Step] does, and cannot be served without
// its undo: that does not compile. A [Plan] is the order they run in.
//
// The agent, which performs steps:
//
//	agent, err := duly.NewAgent(nc)
//	err = Credit.Serve(agent, checkCredit)
//	err = Charge.Serve(agent, charge, refund)
//	err = agent.Run(ctx) // until ctx ends
//
// The client, which submits tasks:
//
//	client, err := duly.NewClient(nc)
//	err = Buy.Apply(ctx, client)
//	receipt, err := Buy.Submit(ctx, client, "order-17", order)
//
// Between the two stands a Duly server, with NATS and a database behind it:
// `duly dev` starts one with neither installed.
//
// # Three rules for handlers
//
// Be quick: the context of a handler ends at its complete-by, and what is
// answered later does not count.
//
// Be ready to be called again: the same [Call.Key] may come twice, undo may come
// for a do that never happened, and a late do may come after its undo. Give the
// key to the service behind, as its idempotency key, or keep a [Ledger]. Package
// dulytest plays all of that against your handlers.
//
// A service that calls back, or thousands of calls at a time, need no goroutine each:
// see [Step.ServeAsync].
//
// Say what is final: an error from [Refuse] ends the step at once, any other
// error is tried again.
//
// # Ids
//
// The caller chooses a task's id, and submitting it twice is one task. That is
// what makes it safe to try again when an answer was lost, which
// [Plan.Submit] does by itself. An id has 1 to 64 of A–Z a–z 0–9 _ -; [ID] makes one
// of any text.
package duly
