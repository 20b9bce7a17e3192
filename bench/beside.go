package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"duly.dev/duly/examples/drone"
)

// An operator who works hard: a page each second, which is two or three questions, beside a script that asks ten times a
// second and Prometheus; with the streams of a console, of a program that follows all endings and of one that follows
// what was undone. In life these are ten people at once.
const (
	operatorRate  = 20 // questions a second
	besidePairs   = 3
	besideSeconds = 8
)

var (
	besideRates  = []int{2000, 8000}
	operatorTail = []string{"/v1/events", "/v1/events?status=undone", "/console/live"}
)

// beside measures the same load without and with an operator who works hard beside it.
func beside(ctx context.Context, s *settings, command string, out io.Writer) error {
	seconds, questions := orElse(s.seconds, besideSeconds), orElse(s.questions, operatorRate)
	follows := operatorTail
	if s.follow != "" {
		follows = strings.Split(s.follow, ",")
	}
	res, err := newPairs(s, command, fmt.Sprintf("%d questions a second, and streams of %s", questions, strings.Join(follows, ", ")), seconds)
	if err != nil {
		return err
	}
	rates := besideRates
	if s.rate > 0 {
		rates = []int{s.rate}
	}
	_, err = within(ctx, rigOptions{HTTP: true}, s, func(r *rig) (*Result, error) {
		var last *Result
		for _, rate := range rates {
			if _, err := r.load(ctx, []segment{warmUp, {Rate: rate, For: warmUp.For}}); err != nil { // heaps, pools and tables grow once
				return nil, err
			}
			c := &Compared{Rate: rate, What: "operator"}
			c.Pairs, err = alternate(orElse(s.pairs, besidePairs), func(_ int, with bool) (Side, error) {
				load := func() (err error) {
					last, err = r.load(ctx, []segment{warmUp, {Rate: rate, For: time.Duration(seconds) * time.Second}})
					return err
				}
				var err error
				if with {
					var seen *visited
					if seen, err = r.visited(ctx, visit{Follow: follows, Rate: questions}, load); err == nil {
						c.Visited = append(c.Visited, seen)
					}
				} else {
					err = load()
				}
				if err != nil {
					return Side{}, err
				}
				fmt.Fprintf(os.Stderr, "beside: %d/s, operator %v: %.0f/s, e2e p99 %.0f ms, engine %.1f µs\n", rate, with, last.TasksPerS, last.EndToEnd.P99, last.CPUPerTask.Engine)
				return sideOf(last), nil
			})
			if err != nil {
				return nil, err
			}
			c.settle()
			res.Compared = append(res.Compared, c)
		}
		return last, nil
	})
	if err != nil {
		return err
	}
	if err := publishTable(s, res, out); err != nil {
		return err
	}
	for _, c := range res.Compared {
		for _, seen := range c.Visited {
			if err := seen.check(questions); err != nil {
				return err
			}
		}
	}
	return nil
}

// visited runs a load beside a visitor.
func (r *rig) visited(ctx context.Context, w visit, load func() error) (*visited, error) {
	return r.visitedAs(ctx, visitorSettings{Token: r.token, Type: drone.Type}, w, load)
}

// visitedAs is visited by one with other settings.
func (r *rig) visitedAs(ctx context.Context, settings visitorSettings, w visit, load func() error) (*visited, error) {
	settings.URL, settings.Profile = r.httpURL, r.profile(partVisitor)
	visitor, err := startChild(ctx, partVisitor, 1, settings, &struct{}{})
	if err != nil {
		return nil, err
	}
	seen := &visited{}
	if err = visitor.ask(w, &struct{}{}); err == nil {
		err = errors.Join(load(), visitor.ask(visit{End: true}, seen))
	}
	return seen, errors.Join(err, visitor.stop())
}

// check refuses a run whose visitor did not do what it was there for.
func (v *visited) check(rate int) error {
	asked := 0
	for _, q := range v.Asked {
		asked += q.Rows
	}
	want := int(v.Seconds * float64(rate))
	switch {
	case v.Failed > 0:
		return fmt.Errorf("%d of the visitor's questions and streams failed, the first: %s", v.Failed, v.Failure)
	case asked < want*9/10:
		return fmt.Errorf("the visitor asked %d questions in %.0f s, want %d; it left out %d for which the node was too slow", asked, v.Seconds, want, v.Late)
	}
	return nil
}
