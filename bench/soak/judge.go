package main

import (
	"slices"
)

// sample is what one process held at a time.
type sample struct {
	Part       string
	PSS        float64 // MiB
	Files      float64
	Goroutines float64
}

// growth is what one process held in the middle of the run and at its end.
type growth struct {
	Part    string  `json:"part"`
	What    string  `json:"what"`
	Before  float64 `json:"before"` // median of the second quarter
	After   float64 `json:"after"`  // median of the last quarter
	Allowed float64 `json:"allowed"`
}

// tolerance is what one figure may rise from the second quarter of a run to its
// last: a part of it, for a collector that has its own mind, and a constant, so
// that a small figure may move at all. What leaks with every task passes both in
// minutes; the first quarter is for caches to fill.
type tolerance struct{ share, constant float64 }

// figures are what is judged.
var figures = []struct {
	name string
	of   func(*sample) float64
	tolerance
}{
	{"pss_mib", func(s *sample) float64 { return s.PSS }, tolerance{0.10, 8}},
	{"files", func(s *sample) float64 { return s.Files }, tolerance{0.05, 8}},
	{"goroutines", func(s *sample) float64 { return s.Goroutines }, tolerance{0.05, 16}},
}

// judge lists what has grown.
func judge(samples []sample) []growth {
	found := []growth{}
	for _, part := range []string{partSystem, partAgents} {
		var own []sample
		for _, s := range samples {
			if s.Part == part {
				own = append(own, s)
			}
		}
		n := len(own)
		for _, f := range figures {
			before, after := median(own[n/4:n/2], f.of), median(own[n-n/4:], f.of)
			if allowed := before*(1+f.share) + f.constant; after > allowed {
				found = append(found, growth{part, f.name, before, after, allowed})
			}
		}
	}
	return found
}

// median of nothing is 0.
func median(samples []sample, of func(*sample) float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	values := make([]float64, len(samples))
	for i := range samples {
		values[i] = of(&samples[i])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
