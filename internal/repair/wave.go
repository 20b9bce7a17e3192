package repair

import (
	"time"

	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// Waves grow by waveGrowth from one task on.
const waveGrowth = 5

// brakeLeast is how many members of a wave must have failed alike before the brake looks at their share: of a wave of
// one or two every failure would be a great part.
const brakeLeast = 3

// item is one member as a runner has it in memory.
type item struct {
	operate.Member
	position uint64    // of the newest message about it; 0: none of this runner's
	sent     time.Time // when that left
	unsent   bool      // a message about it must leave
	allowed  bool      // its owner has read the message and done nothing, and the core would allow it
	ignored  int       // how often that was so
	piled    int       // how often it was asked again although its partition had not read the message before
	input    []byte    // of an edit by patch: what it gets with the next message; nil: it has to be made
}

// wave is one wave of an operation.
type wave struct {
	members []*item // in the order of ordinals, without a gap
	closed  bool    // an operator resumed it after it had braked: what was not asked goes into the next
}

// rest is the first member that was not asked, as an index; len(members): all were.
func (w *wave) rest() int {
	for i, m := range w.members {
		if m.Outcome == operate.OutcomeWaiting {
			return i
		}
	}
	return len(w.members)
}

// open counts the members that were asked and have no outcome.
func (w *wave) open() (n int) {
	for _, m := range w.members {
		if m.Outcome == operate.OutcomeAsked {
			n++
		}
	}
	return n
}

// alike is the most members that failed with one fingerprint, and the text of the first of them.
func (w *wave) alike() (n int, text string) {
	type failure struct {
		n    int
		text string
	}
	by := map[string]*failure{}
	for _, m := range w.members {
		if m.Outcome != operate.OutcomeFailedAgain {
			continue
		}
		key := m.Fingerprint
		if key == "" {
			key = m.Text
		}
		f := by[key]
		if f == nil {
			f = &failure{text: m.Text}
			by[key] = f
		}
		if f.n++; f.n > n {
			n, text = f.n, f.text
		}
	}
	return n, text
}

// brake says why the wave must stop its operation; empty: it need not. percent is how much of a wave may fail alike.
func (w *wave) brake(number, percent int) string {
	n, text := w.alike()
	if n < brakeLeast || n*100 <= percent*len(w.members) {
		return ""
	}
	return say.Of("repair.brake", "wave", number, "n", n, "of", len(w.members), "percent", percent, "text", text)
}

// next is the size of the wave after this one: larger when all has gone well, else the same.
func (w *wave) next(percent, most int) int {
	switch {
	case len(w.members) == 0:
		return 1
	case w.closed, w.open() > 0, w.brake(0, percent) != "":
		return min(len(w.members), most)
	}
	return min(len(w.members)*waveGrowth, most)
}
