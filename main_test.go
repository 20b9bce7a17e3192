package duly

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The definitions the tests share.
type (
	testOrder   struct{ Cents int }
	testReceipt struct{ Payment string }
)

var (
	testCredit = NewCheck[testOrder, int]("credit", "credit.check")
	testCharge = NewStep[testOrder, testReceipt]("charge", "payment.charge")
	testPlan   = NewPlan("order", 1, testCredit, testCharge)
)
