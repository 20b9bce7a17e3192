package core

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestStepSet draws sets and compares each method with a plain map, and looks that no copy changes with its original.
func TestStepSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{3, 63, 64, 65, 128, StepsMax}).Draw(t, "steps")
		draw := func(label string) (StepSet, map[int]bool) {
			is := map[int]bool{}
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, most-1), 0, 40).Draw(t, label) {
				is[i] = true
			}
			var list []int
			for i := range is {
				list = append(list, i)
			}
			return StepSetOf(list...), is
		}
		check := func(what string, s StepSet, has func(i int) bool) {
			t.Helper()
			var want, got []int
			for i := range most {
				if has(i) {
					want = append(want, i)
				}
				if s.Has(i) != has(i) {
					t.Fatalf("%s: has %d: %v", what, i, s.Has(i))
				}
			}
			s.Each(func(i int) { got = append(got, i) })
			if !slices.Equal(got, want) || s.Len() != len(want) || s.Empty() != (len(want) == 0) {
				t.Fatalf("%s: %v, %d of them, want %v", what, got, s.Len(), want)
			}
			if same := StepSetOf(want...); !s.Equal(same) || s.Key() != same.Key() || (s.high == nil) != (same.high == nil) {
				t.Fatalf("%s: it is not the set of %v", what, want)
			}
			stored := s.Bytes()
			if !StepSetIn(stored).Equal(s) || len(stored) > (1+highWords)*8 || len(stored) > 0 && stored[len(stored)-1] == 0 {
				t.Fatalf("%s: stored as %x", what, stored)
			}
		}
		a, inA := draw("a")
		b, inB := draw("b")
		check("a", a, func(i int) bool { return inA[i] })
		check("or", a.Or(b), func(i int) bool { return inA[i] || inB[i] })
		check("and", a.And(b), func(i int) bool { return inA[i] && inB[i] })
		check("and not", a.AndNot(b), func(i int) bool { return inA[i] && !inB[i] })
		x := rapid.IntRange(0, most-1).Draw(t, "x")
		more, less := a, a
		more.Add(x)
		less.Remove(x)
		check("more", more, func(i int) bool { return inA[i] || i == x })
		check("less", less, func(i int) bool { return inA[i] && i != x })
		var all StepBuilder
		all.AddAll(a)
		first := all.Set()
		all.AddAll(b)
		all.Add(x)
		check("built", all.Set(), func(i int) bool { return inB[i] || i == x })
		check("built before", first, func(i int) bool { return inA[i] })
		check("below", StepsBelow(x), func(i int) bool { return i < x })
		check("a after all", a, func(i int) bool { return inA[i] })
		if a.Equal(b) != (a.Key() == b.Key()) {
			t.Fatal("two sets are equal by one of Equal and Key alone")
		}
		if a.Meets(b) == a.And(b).Empty() {
			t.Fatal("two sets meet, or not, and And says otherwise")
		}
		if a.Has(-1) || a.Has(1<<20) {
			t.Fatal("it has a step that no plan can have")
		}
	})
}

// TestStepSetAllocatesNothing: the sets of a plan of 64 steps.
func TestStepSetAllocatesNothing(t *testing.T) {
	a, b := StepsBelow(64), StepSetOf(0, 63)
	n := 0
	if got := testing.AllocsPerRun(100, func() {
		c := a.AndNot(b).Or(b).And(a)
		c.Add(63)
		c.Remove(5)
		var all StepBuilder
		all.AddAll(c)
		all.Add(5)
		all.Set().Each(func(i int) { n += i })
	}); got != 0 {
		t.Fatalf("%v allocations, %d", got, n)
	}
}
