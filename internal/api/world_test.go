package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is a moment of the tests.
const epoch = core.Instant(1_700_000_000_000_000)

// byDigit puts an id that ends in a digit into the partition of that digit.
func byDigit(id string, partitions int) int { return int(id[len(id)-1]) % partitions }

// jsonOf is a JSON string of so many bytes.
func jsonOf(size int) []byte { return []byte(`"` + strings.Repeat("x", size-2) + `"`) }

// onePlan knows one plan.
type onePlan struct{ plan core.Plan }

func (p *onePlan) Plan(taskType string, _ int64) *core.Plan {
	if taskType != p.plan.Name {
		return nil
	}
	return &p.plan
}

func (p *onePlan) Deprecated(string, int64) bool { return false }

func (p *onePlan) Reload(done func(error)) { done(nil) }

// stored is a task stream that stores everything.
type stored struct{}

func (stored) Publish(_ int, _ []core.Submission, done func(uint64, error)) { done(1, nil) }

// running starts an ingest with the plan "order", whose inputs may have 1000 bytes; the
// end of the test ends it.
func running(t *testing.T) *ingest.Ingest {
	t.Helper()
	plan := core.Plan{Name: "order", Version: 1, InputMax: 1000}
	door, err := ingest.NewDoor(ingest.Config{StreamOf: func(int) string { return "" }, Partitions: 16, PartitionOf: byDigit}, &onePlan{plan}, stored{})
	if err != nil {
		t.Fatal(err)
	}
	return serveDoor(t, door)
}

// serveDoor runs an ingest around a door until the test ends.
func serveDoor(t *testing.T, door *ingest.Door) *ingest.Ingest {
	t.Helper()
	in := ingest.New(door, func() core.Instant { return core.InstantOf(time.Now()) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return in
}
