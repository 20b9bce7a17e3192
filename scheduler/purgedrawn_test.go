package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/scheduler"
)

// agesScript is what happens to partitions in streams of their own, whose tasks grow old.
type agesScript struct {
	keep     scheduler.Retention
	wentBack []time.Duration // by partition: how long ago its database went back; 0: never
	phases   []agesPhase
}

type agesPhase struct {
	live   []string
	begins []int // by partition: minutes since its stream begins; 0: it is empty, below that: not known
	old    []int // by partition: how many tasks grow old
	fails  bool
	lasts  time.Duration
}

func drawnAges(t *rapid.T) *agesScript {
	partitions := rapid.IntRange(1, 3).Draw(t, "partitions")
	s := &agesScript{keep: scheduler.Retention{
		Detail: time.Duration(rapid.IntRange(0, 30).Draw(t, "detail")) * time.Minute, Row: time.Duration(rapid.IntRange(0, 60).Draw(t, "row")) * time.Minute,
	}}
	for range partitions {
		ago := time.Duration(rapid.IntRange(3500, 3640).Draw(t, "went back")) * time.Second
		if ago < 3560*time.Second {
			ago = 0
		}
		s.wentBack = append(s.wentBack, ago)
	}
	s.phases = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) agesPhase {
		return agesPhase{
			live:   rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(t, "live"),
			begins: rapid.SliceOfN(rapid.IntRange(-1, 90), partitions, partitions).Draw(t, "begins"),
			old:    rapid.SliceOfN(rapid.IntRange(0, 700), partitions, partitions).Draw(t, "old"), fails: rapid.Bool().Draw(t, "fails"),
			lasts: time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds"))*time.Second + 137*time.Millisecond, // a look is at no end of one
		}
	}), 1, 3).Draw(t, "phases")
	s.phases = append(s.phases, agesPhase{live: []string{"a", "b"}, begins: make([]int, partitions), old: make([]int, partitions), lasts: time.Minute})
	return s
}

// TestAgesThroughAnything: whoever owns which partition, wherever its stream begins and whenever its database went back,
// nothing is asked to go that is younger than its age, whose submission can come again, or of a partition that went back a
// short while ago; and in the end all goes that is old.
//
// covers: Q4, L2, A1
func TestAgesThroughAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := drawnAges(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = script.play(t) })
		if len(wrong) > 0 {
			rt.Fatalf("%d faults; the first: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
		}
	})
}

// agesStore compares what is asked to go with what may.
type agesStore struct {
	*oldStore
	script *agesScript
	began  core.Instant
	phase  agesPhase
	since  core.Instant // when it began
	wrong  []string
}

func (s *agesStore) Purge(ctx context.Context, partition int, epoch int64, detail, row core.Instant, limit int) (int, error) {
	s.mu.Lock()
	now := core.InstantOf(time.Now())
	ages := s.script.keep
	before := func(d time.Duration) core.Instant {
		if d == 0 {
			return 0
		}
		return now.Add(-d)
	}
	wantRow := before(ages.Row)
	if at, known := s.begins(partition); !known {
		wantRow = 0
	} else if at != 0 {
		wantRow = min(wantRow, at.Add(-30*time.Second))
	}
	switch ago := s.script.wentBack[partition]; {
	case ago > 0 && now.Sub(s.began.Add(-ago)) < time.Hour:
		s.wrong = append(s.wrong, fmt.Sprintf("partition %d is looked at %v after its database went back", partition, now.Sub(s.began.Add(-ago))))
	case detail != before(ages.Detail), row != wantRow:
		s.wrong = append(s.wrong, fmt.Sprintf("of partition %d details before %d go and rows before %d, want %d and %d", partition, detail, row, before(ages.Detail), wantRow))
	case epoch != s.Partition(partition).Epoch:
		s.wrong = append(s.wrong, fmt.Sprintf("partition %d is looked at under epoch %d", partition, epoch))
	}
	s.mu.Unlock()
	return s.oldStore.Purge(ctx, partition, epoch, detail, row, limit)
}

// begins is when a partition's stream begins.
func (s *agesStore) begins(partition int) (core.Instant, bool) {
	ago := s.phase.begins[partition]
	if ago <= 0 {
		return 0, ago == 0
	}
	return s.since.Add(-time.Duration(ago) * time.Minute), true
}

func (script *agesScript) play(t *testing.T) []string {
	c := newCluster(t)
	s := &agesStore{oldStore: &oldStore{spyStore: c.store, old: map[int]int{}}, script: script, began: core.InstantOf(time.Now()), phase: script.phases[0]}
	for p, ago := range script.wentBack {
		if ago > 0 {
			if _, err := s.TakeOver(t.Context(), p, core.Claim{Owner: "before", WentBack: true, At: s.began.Add(-ago)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ends := map[string]func(){}
	for _, phase := range script.phases {
		s.mu.Lock()
		s.phase, s.since, s.failed = phase, core.InstantOf(time.Now()), phase.fails
		for p, n := range phase.old {
			s.old[p] += n
		}
		s.mu.Unlock()
		for _, name := range phase.live {
			if ends[name] == nil {
				ends[name] = script.node(t, c, s, name)
			}
		}
		c.setLive(phase.live...)
		for name, end := range ends {
			if !strings.Contains(strings.Join(phase.live, " "), name) {
				end()
				delete(ends, name)
			}
		}
		pass(phase.lasts)
	}
	for _, end := range ends {
		end()
	}
	for p, n := range s.old {
		if n > 0 && script.keep != (scheduler.Retention{}) {
			s.wrong = append(s.wrong, fmt.Sprintf("%d old tasks of partition %d are left", n, p))
		}
	}
	return s.wrong
}

// node runs a scheduler.
func (script *agesScript) node(t *testing.T, c *cluster, s *agesStore, name string) (end func()) {
	cfg := scheduler.RunConfig{
		Config: scheduler.Config{Node: name}, Partitions: len(script.wentBack), Rand: locked(chance(name)), Retain: script.keep,
		Begins: func(partition int) (core.Instant, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.begins(partition)
		},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- scheduler.New(cfg, s, c, c, c, c.logs).Run(ctx) }()
	return func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
