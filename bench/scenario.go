package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// scenarios by name.
var scenarios = map[string]func(context.Context, *settings) (*Result, error){
	"peak": peak, "sustained": sustained, "spike": spike, "idle": idle, "growth": growth,
}

// warmUp comes before every measured load: connections, plans and caches are
// then as they are in a system that has run for a while.
var warmUp = segment{Rate: 1000, For: 3 * time.Second, Warm: true}

func orElse(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// system adds the settings common to all scenarios to a scenario's own.
func (s *settings) system(o rigOptions) rigOptions {
	o.Store, o.Partitions, o.Profiles, o.Waiting = s.store, s.partitions, s.profiles, s.waiting
	o.Shards, o.CommitGap = s.shards, s.commitGap
	return o
}

// within runs a scenario on a rig, closes the books and ends it.
func within(ctx context.Context, o rigOptions, s *settings, body func(*rig) (*Result, error)) (*Result, error) {
	o = s.system(o)
	o.Single, o.NATSURL, o.Database = s.wire == "single", s.nats, s.database
	r, err := newRig(ctx, o)
	if err != nil {
		return nil, err
	}
	res, err := body(r)
	if err == nil {
		err = r.closeBooks(res)
	}
	return res, errors.Join(err, r.close())
}

// The search for the peak.
const (
	probeSeconds = 15
	probeFirst   = 8000
	probeStep    = 1.25
	probeFine    = 3 // halvings of the last interval
)

// peak finds the highest rate whose backlog at the end is at most a second of
// arrivals, with agents that answer at once.
func peak(ctx context.Context, s *settings) (*Result, error) {
	return within(ctx, rigOptions{}, s, func(r *rig) (*Result, error) {
		seconds := orElse(s.seconds, 60)
		if s.rate > 0 {
			// The search ends on a system that has run its probes; without it heaps and
			// pools would grow in the first seconds of what is measured.
			return r.load(ctx, []segment{warmUp, {Rate: s.rate / 2, For: probeSeconds * time.Second, Warm: true}, {Rate: s.rate, For: time.Duration(seconds) * time.Second}})
		}
		var probes []Probe
		probe := func(rate int) (bool, error) {
			res, err := r.load(ctx, []segment{warmUp, {Rate: rate, For: min(probeSeconds, time.Duration(seconds)) * time.Second}})
			if err != nil {
				return false, err
			}
			p := Probe{OfferedPerS: res.OfferedPerS, TasksPerS: res.TasksPerS, FinalBacklog: res.FinalBacklog, Held: held(res)}
			fmt.Fprintf(os.Stderr, "peak: %6d/s offered, %6.0f/s in time, backlog %6d, held %v, %.0f µs a task\n", rate, p.TasksPerS, p.FinalBacklog, p.Held, res.CPUPerTask.Total)
			probes = append(probes, p)
			return p.Held, nil
		}
		rate, err := search(probe)
		if err != nil {
			return nil, err
		}
		for {
			res, err := r.load(ctx, []segment{warmUp, {Rate: rate, For: time.Duration(seconds) * time.Second}})
			if err != nil || held(res) || rate < 100 {
				if err == nil {
					res.Probes = probes
				}
				return res, err
			}
			// What held for 15 seconds need not hold for a minute.
			probes = append(probes, Probe{OfferedPerS: res.OfferedPerS, TasksPerS: res.TasksPerS, FinalBacklog: res.FinalBacklog})
			rate = rate * 95 / 100
		}
	})
}

// held reports whether a rate was kept: all of it was processed in time, and at its end at most a second of arrivals was not
// yet.
func held(r *Result) bool {
	missed := r.Refused + r.TimedOut + r.Undone + r.Expired + r.Error + r.Late
	return float64(r.FinalBacklog) <= r.OfferedPerS && missed == 0
}

// search finds the highest rate that a probe holds: by growing steps, then by
// halving.
func search(probe func(rate int) (bool, error)) (int, error) {
	low, high := 0, 0
	for rate := probeFirst; high == 0; {
		ok, err := probe(rate)
		switch {
		case err != nil:
			return 0, err
		case ok:
			low, rate = rate, int(float64(rate)*probeStep)
		case low == 0 && rate > 500:
			rate /= 2
		default:
			high = rate
		}
		if low > 0 && rate <= low {
			break
		}
	}
	for range probeFine {
		rate := (low + high) / 2
		ok, err := probe(rate)
		if err != nil {
			return 0, err
		}
		if ok {
			low = rate
		} else {
			high = rate
		}
	}
	return low, nil
}

// sustained holds 10,000 tasks a second with the reference latencies, while old
// tasks are purged.
func sustained(ctx context.Context, s *settings) (*Result, error) {
	o := rigOptions{Scale: 1, RetainDetail: 30 * time.Second, MaxWALSize: sustainedWALSize}
	if s.preload > 0 {
		o.Prepare = func(ctx context.Context, r *rig) error { return r.preload(ctx, s.preload) }
	}
	return within(ctx, o, s, func(r *rig) (*Result, error) {
		res, err := r.load(ctx, []segment{warmUp, {Rate: orElse(s.rate, 10_000), For: time.Duration(orElse(s.seconds, 120)) * time.Second}})
		if err != nil {
			return nil, err
		}
		res.RetainDetail, res.Preloaded = o.RetainDetail.Seconds(), s.preload
		return res, r.countPurged(ctx, res)
	})
}

// Rates and bounds of the spike.
const (
	spikeQuiet  = 3000
	spikeRate   = 50_000
	spikeSettle = 5 * time.Minute // the most its end may take
)

// spike is quiet, then ten seconds of 50,000 a second, then quiet until less
// than a second of arrivals is unfinished.
func spike(ctx context.Context, s *settings) (*Result, error) {
	return within(ctx, rigOptions{Scale: 1, QueueFor: s.queueFor}, s, func(r *rig) (*Result, error) {
		return r.load(ctx, []segment{warmUp,
			{Rate: spikeQuiet, For: 10 * time.Second},
			{Rate: orElse(s.rate, spikeRate), For: time.Duration(orElse(s.seconds, 10)) * time.Second},
			{Rate: spikeQuiet, For: spikeSettle, Settle: true},
		})
	})
}
