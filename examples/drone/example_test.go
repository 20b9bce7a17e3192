package drone_test

import (
	"context"
	"fmt"

	"duly.dev/duly/examples/drone"
)

// The services apply once per key, and the checker counts what went wrong.
func Example() {
	services, err := drone.NewServices(drone.ServiceOptions{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := drone.NewGenerator(1).Request(0)
	id := request.DeliveryID
	call := drone.Call{Task: id, Key: id + "/package/0", Attempt: 1}
	for range 2 {
		if _, err := services.Service(drone.StepPackage).Do(context.Background(), call); err != nil {
			fmt.Println(err)
		}
	}
	entry := services.Books().Entry(id, drone.StepPackage)
	fmt.Println(entry.Calls, "calls,", entry.Live, "effect")

	report := services.Books().Check([]string{id}, drone.OutcomeMap{id: {State: drone.StateProcessed}})
	fmt.Println(report.HalfDone, "half done:", report.Examples[0].Why)
	// Output:
	// 2 calls, 1 effect
	// 1 half done: processed, but step account never succeeded
}
