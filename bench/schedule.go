package main

import "time"

// segment is a stretch of constant arrivals.
type segment struct {
	Rate   int // per second
	For    time.Duration
	Warm   bool // not measured, only counted in the books
	Settle bool // until the backlog is below a second of arrivals; For is the most it may take
}

// count is how many arrivals the segment has.
func (s segment) count() int { return int(int64(s.Rate) * int64(s.For) / int64(time.Second)) }

// schedule is a fixed plan of arrivals: each has its time whatever became of the
// ones before.
type schedule struct {
	segments []segment
	first    []int           // number of each segment's first arrival
	begins   []time.Duration // when each begins
	total    int
	length   time.Duration
}

func newSchedule(segments []segment) *schedule {
	s := &schedule{segments: segments}
	for _, g := range segments {
		s.first, s.begins = append(s.first, s.total), append(s.begins, s.length)
		s.total += g.count()
		s.length += g.For
	}
	return s
}

// at is when arrival i is due, from the beginning.
func (s *schedule) at(i int) time.Duration {
	k := s.segmentOf(i)
	rate := int64(s.segments[k].Rate)
	// Rounded up, so that it is due at that time by due's own count.
	return s.begins[k] + time.Duration((int64(i-s.first[k])*int64(time.Second)+rate-1)/rate)
}

// segmentOf is the segment of arrival i.
func (s *schedule) segmentOf(i int) int {
	k := len(s.first) - 1
	for k > 0 && i < s.first[k] {
		k--
	}
	return k
}

// due is how many arrivals are due at a time from the beginning.
func (s *schedule) due(t time.Duration) int {
	for k := len(s.segments) - 1; k >= 0; k-- {
		if g := s.segments[k]; t >= s.begins[k] {
			n := int(int64(g.Rate)*int64(t-s.begins[k])/int64(time.Second)) + 1
			return s.first[k] + min(n, g.count())
		}
	}
	return 0
}
