package harness

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Task is one piece of work: a delivery order and the steps that are done to it.
type Task struct {
	Number int
	Order  Order
}

// Order is the input of a task, about 300 bytes of JSON.
type Order struct {
	ID       string    `json:"id"`
	Customer string    `json:"customer"`
	Street   string    `json:"street"`
	City     string    `json:"city"`
	Placed   time.Time `json:"placed"`
	Items    []Item    `json:"items"`
	Note     string    `json:"note"`
}

// Item is one line of an order.
type Item struct {
	SKU   string `json:"sku"`
	Count int    `json:"count"`
	Cents int    `json:"cents"`
}

// StepResult is what every step returns, about 100 bytes of JSON.
type StepResult struct {
	Order string `json:"order"`
	Step  int    `json:"step"`
	State string `json:"state"`
	Code  string `json:"code"`
}

// placed is when all orders were placed: the size of an input is the same in
// every run.
var placed = time.Date(2026, time.January, 15, 9, 30, 0, 0, time.UTC)

// NewTask is the task with this number.
func NewTask(number int) Task {
	return Task{Number: number, Order: Order{
		ID: ID(number), Customer: fmt.Sprintf("customer-%06d", number%100_000),
		Street: "12 Long Meadow Lane, second floor", City: "Springfield", Placed: placed,
		Items: []Item{{SKU: "SKU-000417", Count: 2, Cents: 1299}, {SKU: "SKU-001093", Count: 1, Cents: 4550}},
		Note:  "ring twice, leave with the neighbour on the left if there is no answer",
	}}
}

// idPrefix begins the name of every task.
const idPrefix = "order-"

// ID is the name of a task, the same in the load and in the database.
func ID(number int) string { return fmt.Sprintf("%s%09d", idPrefix, number) }

// Number is the task with this name.
func Number(id string) (int, error) {
	digits, ok := strings.CutPrefix(id, idPrefix)
	if !ok {
		return 0, fmt.Errorf("%q is no task of this run", id)
	}
	return strconv.Atoi(digits)
}

// Step is the handler of every step. It returns at once: what is measured is what
// surrounds it.
func Step(o Order, step int) StepResult {
	return StepResult{Order: o.ID, Step: step, State: "done", Code: "4f1c9a7e5b2d8036-4f1c9a7e5b2d8036"}
}
