package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
)

// More is offered than can be done: first it is measured how much that is, C, and then so many times as much arrives.
const (
	overMost   = 10               // times C
	overWithin = 15 * time.Second // of each delivery
	// queueStanding is the longest queue, in time, that the door lets stand: standTarget of package ingest.
	queueStanding = 2 * time.Second
	// windowFloor is how many tasks of a partition a node may have in flight before any waits, while answers are in time: floor of
	// scheduler.Admission.
	windowFloor = 256
	inTimeLeast = 0.85 // of C
	// quietLeast is added to the time between two faults: of a second alone one cannot say how much is processed in it, because what is
	// taken goes up and down with the queue within five.
	quietLeast = 5 * time.Second

	capacityGuess = 200  // a second, at first: far more than can be done leaves agents no time, and what is measured is how their tries fail
	capacityOver  = 1.4  // C is measured of so many times what was processed before, so that the queue is full all the time
	capacityMore  = 1.5  // times what was offered, where the queue was not full
	capacitySlow  = 0.6  // of what is offered: where less is processed, less is offered
	capacityLess  = 1.25 // so many times
	capacityTries = 20
	capacityWarm  = 3 * time.Second
	capacityLook  = 3 * time.Second // until something is known
	capacityFor   = 20 * time.Second
)

// conditionOverload is the condition that is expected then.
const conditionOverload = "overload"

// over is a stage of which more is asked than it can do.
type over struct {
	times    float64
	c, after float64 // deliveries a second that are processed in time: before the first fault, and when the last one is over

	offered span       // times × c
	seconds []arrivals // one a second of the storm, for tellSeconds
	arrived [2]int64   // before, and then in it: all, and those that were turned away
	quiet   []span     // nothing was wrong
}

// arrivals are all that had arrived by a time, and those that had been turned away.
type arrivals struct {
	at time.Time
	n  [2]int64
}

// span is from a time on and before another.
type span struct{ from, to time.Time }

// newOver is nil where the rate was given.
func newOver(times float64) *over {
	if times == 0 {
		return nil
	}
	return &over{times: times}
}

// within is how long a delivery may take; 0: as its plan says.
func (o *over) within() time.Duration {
	if o == nil {
		return 0
	}
	return overWithin
}

// quietFor is how long no fault is at work, at least.
func (o *over) quietFor() time.Duration {
	if o == nil {
		return 0
	}
	return quietLeast
}

// wasQuiet notes a time in which no fault was at work, and that began when the system had recovered from the one before.
func (o *over) wasQuiet(from, to time.Time) {
	if o != nil {
		o.quiet = append(o.quiet, span{from, to})
	}
}

// unexpected are lines without the alerts of what is to be expected.
func (o *over) unexpected(lines []line) []line {
	if o == nil {
		return lines
	}
	var rest []line
	for _, l := range lines {
		if l.attrs["alert"] == "" || l.attrs["name"] != conditionOverload {
			rest = append(rest, l)
		}
	}
	return rest
}

// backlogMost is what may be unfinished though nothing is wrong: a second of arrivals, a queue that stands, and what nodes let
// begin however slow the machine is.
func (w *world) backlogMost() int {
	if w.over == nil {
		return w.rate
	}
	return w.rate + int(queueStanding.Seconds()*w.over.c) + partitions*windowFloor
}

// measure finds C, and lets times × C arrive from then on.
func (w *world) measure(ctx context.Context) error {
	rate, length, best, slowed := float64(w.rate), capacityLook, 0.0, false
	for range capacityTries {
		c, full, err := w.processed(ctx, rate, length)
		if err != nil {
			return fmt.Errorf("how much can be done: %w", err)
		}
		fmt.Fprintf(w.out, "stage %s: %.0f a second of %.0f are processed in time, and more wait: %v\n", w.stage.name, c, rate, full)
		if length == capacityFor {
			best = max(best, c)
		}
		switch {
		case c == 0: // it has not begun yet
		case !full && !slowed:
			rate *= capacityMore
		case length == capacityLook:
			rate, length = capacityOver*c, capacityFor
		case full && c < capacitySlow*rate: // what waits has slowed it down
			rate, slowed = rate/capacityLess, true
		default:
			w.rate = int(w.over.times * best)
			w.load.arrivals(w.rate)
			w.over.c, w.over.offered.from, w.over.arrived = best, time.Now(), w.load.arrived()
			return nil
		}
	}
	return fmt.Errorf("how much can be done: it was not found in %d tries", capacityTries)
}

// measureAgain ends the time in which times × C arrives, and measures C once more: whether it is still what it was.
func (w *world) measureAgain(ctx context.Context) {
	o, now := w.over, w.load.arrived()
	o.offered.to, o.arrived = time.Now(), [2]int64{now[0] - o.arrived[0], now[1] - o.arrived[1]}
	var err error
	if o.after, _, err = w.processed(ctx, capacityOver*o.c, capacityFor); err != nil { // the books are closed all the same
		fmt.Fprintf(w.out, "how much can be done now: %v\n", err)
	}
}

// processed lets so many arrive a second, and is how many are processed in time a second once that has gone on for a while.
// Where the queue was full so many wait at the end, for a second or more.
func (w *world) processed(ctx context.Context, rate float64, length time.Duration) (perS float64, full bool, err error) {
	w.load.arrivals(int(rate))
	if err := pause(ctx, capacityWarm); err != nil {
		return 0, false, err
	}
	from := time.Now()
	if err := pause(ctx, length); err != nil {
		return 0, false, err
	}
	to := time.Now()
	left, err := w.backlog(ctx)
	if err != nil {
		return 0, false, err
	}
	perS, _, err = w.inTime(ctx, []span{{from, to}})
	return perS, perS > 0 && float64(left) > perS, err
}

// inTime is how many deliveries a second were processed by their deadlines, by the store's books, and of how many seconds.
func (w *world) inTime(ctx context.Context, in []span) (rate, seconds float64, err error) {
	var n int64
	var times []string
	ended := w.micros("ended_at")
	for _, s := range in {
		seconds += s.to.Sub(s.from).Seconds()
		times = append(times, fmt.Sprintf("%s >= %d AND %s < %d", ended, s.from.UnixMicro(), ended, s.to.UnixMicro()))
	}
	if seconds == 0 {
		return 0, 0, nil
	}
	query := `SELECT count(*) FROM tasks WHERE type = '` + drone.Type + `' AND state = '` + string(core.StateProcessed) + `' AND ended_at <= deadline AND (` + strings.Join(times, ` OR `) + `)`
	err = w.ask(ctx, query, &n)
	return float64(n) / seconds, seconds, err
}

// noTimeReasons are those of journal rows, other than of kind expired, that undo a task for want of time.
var noTimeReasons = []string{
	"the task's deadline leaves no time for another try", "no time was left when the task came up in the queue; nothing of it began",
}

// noTime is the share of the deliveries of a time that were undone for want of time.
func (w *world) noTime(ctx context.Context, of span) (float64, error) {
	bytes := "BYTEA"
	if w.stage.topology == devOnly {
		bytes = "BLOB"
	}
	var reasons []string
	for _, r := range noTimeReasons {
		reasons = append(reasons, `CAST('`+strings.ReplaceAll(r, `'`, `''`)+`' AS `+bytes+`)`)
	}
	var all, late int64
	query := fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE t.state = '%s' AND EXISTS (SELECT 1 FROM journal j
		WHERE j.partition = t.partition AND j.number = t.number AND (j.kind = '%s' OR j.reason IN (%s)))) FROM tasks t WHERE t.type = '%[4]s' AND %[5]s >= %[6]d AND %[5]s < %[7]d`,
		core.StateUndone, core.KindExpired, strings.Join(reasons, ", "), drone.Type, w.micros("t.created_at"), of.from.UnixMicro(), of.to.UnixMicro())
	err := w.ask(ctx, query, &all, &late)
	return share(late, all), err
}

// micros is a column that is a time, in microseconds.
func (w *world) micros(column string) string {
	if w.stage.topology == devOnly {
		return column
	}
	return `CAST(extract(epoch FROM ` + column + `) * 1000000 AS BIGINT)`
}

// overReport is what came of a stage of which more was asked than it can do.
type overReport struct {
	Stage      string  `json:"stage"`
	C          float64 `json:"c"`             // deliveries a second that are processed in time where no fault is at work
	After      float64 `json:"c_after"`       // the same, measured again after the last fault
	Offered    float64 `json:"offered_per_s"` // in between, as TurnedAway and NoTime
	InTime     float64 `json:"in_time_of_c"`  // share of C that was processed in time a second, of the quiet seconds
	Quiet      float64 `json:"quiet_s"`
	TurnedAway float64 `json:"turned_away"` // share of what was offered that was told to come later
	NoTime     float64 `json:"no_time"`     // share of the tasks that were accepted and then undone for want of time
}

// String is a last line of the table.
func (o *overReport) String() string {
	return fmt.Sprintf("stage %s: C %.0f a second (%.0f afterwards), offered %.0f a second, in time %.1f %% of C over %.0f s without a fault, turned away %.1f %% of the offered, undone for want of time %.1f %% of the accepted",
		o.Stage, o.C, o.After, o.Offered, 100*o.InTime, o.Quiet, 100*o.TurnedAway, 100*o.NoTime)
}

// closeOver adds a stage to the report, whose load has ended.
func (w *world) closeOver(ctx context.Context, r *report) error {
	o := w.over
	perS, quiet, err := w.inTime(ctx, o.quiet)
	noTime, err2 := w.noTime(ctx, o.offered)
	r.Over = append(r.Over, &overReport{
		Stage: w.stage.name, C: o.c, After: o.after, Offered: float64(o.arrived[0]) / o.offered.to.Sub(o.offered.from).Seconds(), InTime: perS / o.c, Quiet: quiet,
		TurnedAway: share(o.arrived[1], o.arrived[0]), NoTime: noTime,
	})
	return errors.Join(err, err2, w.tellSeconds(ctx))
}

// watchArrivals notes each second what has arrived, until the context ends.
func (w *world) watchArrivals(ctx context.Context) {
	for {
		w.over.seconds = append(w.over.seconds, arrivals{time.Now(), w.load.arrived()})
		if pause(ctx, time.Second) != nil {
			return
		}
	}
}

// tellSeconds writes what became of each second of the load to a file beside the logs, for people.
func (w *world) tellSeconds(ctx context.Context) (err error) {
	db, err := w.sql()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	by := func(column, which string) (map[int64]int64, error) {
		of := map[int64]int64{}
		rows, err := db.QueryContext(ctx, `SELECT `+w.micros(column)+` / 1000000 AS second, count(*) FROM tasks WHERE `+column+` IS NOT NULL AND `+which+` GROUP BY 1`)
		if err != nil {
			return nil, fmt.Errorf("tasks by second: %w", err)
		}
		for rows.Next() {
			var second, n int64
			if err := rows.Scan(&second, &n); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			of[second] = n
		}
		return of, rows.Err()
	}
	created, err := by("created_at", "TRUE")
	ended, err2 := by("ended_at", "TRUE")
	inTime, err3 := by("ended_at", "ended_at <= deadline AND state = '"+string(core.StateProcessed)+"'")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	var lines strings.Builder
	lines.WriteString("time      arrived  refused  created  in time  late or undone  quiet\n")
	for i, from := range w.over.seconds[:max(0, len(w.over.seconds)-1)] {
		to, second := w.over.seconds[i+1], from.at.Unix()
		quiet := slices.ContainsFunc(w.over.quiet, func(s span) bool { return s.from.Before(to.at) && s.to.After(from.at) })
		fmt.Fprintf(&lines, "%s %8d %8d %8d %8d %15d  %v\n", from.at.UTC().Format(time.TimeOnly), to.n[0]-from.n[0], to.n[1]-from.n[1],
			created[second], inTime[second], ended[second]-inTime[second], quiet)
	}
	return os.WriteFile(filepath.Join(w.dir, "seconds.txt"), []byte(lines.String()), 0o644)
}

// share is a part of a whole; of nothing 0.
func share(part, whole int64) float64 { return float64(part) / float64(max(1, whole)) }
