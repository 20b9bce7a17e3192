// The soak program keeps a whole system under a steady load, with everything
// that is done forgotten after seconds, and watches what its processes hold. It
// prints a table and a JSON object, and ends with 1 when memory, open files or
// goroutines grow.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	seconds int
	rate    int // submissions a second
	every   time.Duration
}

func main() {
	if len(os.Args) == 2 && (os.Args[1] == partSystem || os.Args[1] == partAgents) {
		os.Exit(status(runPart(os.Args[1])))
	}
	var s settings
	flag.IntVar(&s.seconds, "seconds", 1200, "how long, in seconds; at least 160")
	flag.IntVar(&s.rate, "rate", 300, "submissions a second")
	flag.DurationVar(&s.every, "every", 5*time.Second, "between two samples; at most a sixteenth of the time is used")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := soak(ctx, s)
	stop()
	os.Exit(status(err))
}

// status is the exit status; the report has told what grows.
func status(err error) int {
	if err == nil {
		return 0
	}
	if !errors.Is(err, errGrowth) {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	return 1
}

// errGrowth ends the program with 1 after the report has said why.
var errGrowth = errors.New("something grows")

// secondsMin leaves the first quarter of a run to the filling of what is kept for
// a while: see retainRow.
const secondsMin = 160

// soak runs the load and judges the samples.
func soak(ctx context.Context, s settings) (err error) {
	if s.seconds < secondsMin || s.rate < 1 || s.every < time.Millisecond {
		return fmt.Errorf("seconds %d, rate %d, every %v: want at least %d, 1 and 1ms", s.seconds, s.rate, s.every, secondsMin)
	}
	dir, err := os.MkdirTemp("", "duly-soak-")
	if err != nil {
		return fmt.Errorf("temporary directory: %w", err)
	}
	defer os.RemoveAll(dir)
	system, url, err := startPart(partSystem, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, system.stop()) }()
	agents, _, err := startPart(partAgents, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.stop()) }()
	run := time.Duration(s.seconds) * time.Second
	w := &watch{every: min(s.every, run/16), parts: []*part{system, agents}}
	bounded, cancel := context.WithTimeout(ctx, run)
	defer cancel()
	load, err := w.under(bounded, url, s.rate)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %v", time.Since(w.began).Round(time.Second))
	}
	r := report{Seconds: s.seconds, Submitted: load.accepted.Load(), Refused: load.refused.Load(), Samples: len(w.samples), Growth: judge(w.samples)}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if len(r.Growth) > 0 || r.Submitted == 0 {
		return errGrowth
	}
	return nil
}

// report is the last line.
type report struct {
	Seconds   int      `json:"seconds"`
	Submitted int64    `json:"submitted"`
	Refused   int64    `json:"refused"`
	Samples   int      `json:"samples"`
	Growth    []growth `json:"growth"` // empty: everything is flat
}
