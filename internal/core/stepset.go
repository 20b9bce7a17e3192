package core

import "math/bits"

// wordSteps are the steps that one word of a set has, highWords the words besides the first.
const (
	wordSteps = 64
	highWords = 15
)

// The words have a bit for each step that a plan can have.
const _ = uint((1+highWords)*wordSteps - StepsMax)

// StepSet is a set of steps of one plan. It is a value: a copy never changes with the original. Of a plan of up to 64 steps
// it is one word and allocates nothing; with later steps in it, each method that returns or changes a set allocates 128
// bytes. Many steps are collected with a [StepBuilder].
type StepSet struct {
	_    [0]func()          // no ==, which would compare addresses: see Equal
	low  uint64             // bit i: step i
	high *[highWords]uint64 // the steps from 64 on; nil: none of them. Copies share it, so it is never changed
}

// StepSetOf is the set of these steps.
func StepSetOf(steps ...int) StepSet {
	var b StepBuilder
	for _, i := range steps {
		b.Add(i)
	}
	return b.Set()
}

// StepsBelow is the set of the first n steps.
func StepsBelow(n int) StepSet {
	if n < wordSteps {
		return StepSet{low: 1<<uint(max(n, 0)) - 1}
	}
	b := StepBuilder{StepSet{low: ^uint64(0)}}
	for i := wordSteps; i < n; i++ {
		b.Add(i)
	}
	return b.Set()
}

// Has reports whether a step is in the set.
func (s StepSet) Has(i int) bool {
	if uint(i) < wordSteps {
		return s.low>>uint(i)&1 != 0
	}
	return s.high != nil && s.hasHigh(i)
}

func (s StepSet) hasHigh(i int) bool {
	word := uint(i)/wordSteps - 1
	return word < highWords && s.high[word]>>(uint(i)%wordSteps)&1 != 0
}

// Empty reports whether no step is in the set.
func (s StepSet) Empty() bool { return s.low == 0 && s.high == nil }

// Equal reports whether two sets have the same steps.
func (s StepSet) Equal(o StepSet) bool {
	return s.low == o.low && (s.high == o.high || s.high != nil && o.high != nil && *s.high == *o.high)
}

// Len is how many steps are in the set.
func (s StepSet) Len() int {
	n := bits.OnesCount64(s.low)
	if s.high != nil {
		for _, w := range s.high {
			n += bits.OnesCount64(w)
		}
	}
	return n
}

// Each calls yield for each step of the set, in the plan's order.
func (s StepSet) Each(yield func(i int)) {
	for w := s.low; w != 0; w &= w - 1 {
		yield(bits.TrailingZeros64(w))
	}
	if s.high == nil {
		return
	}
	for n, w := range s.high {
		for ; w != 0; w &= w - 1 {
			yield((n+1)*wordSteps + bits.TrailingZeros64(w))
		}
	}
}

// Or is the set of the steps that are in either.
func (s StepSet) Or(o StepSet) StepSet {
	if o.high == nil {
		return StepSet{low: s.low | o.low, high: s.high}
	}
	return s.or(o)
}

func (s StepSet) or(o StepSet) StepSet {
	if s.high == nil {
		return StepSet{low: s.low | o.low, high: o.high}
	}
	high := *s.high
	for i, w := range o.high {
		high[i] |= w
	}
	return StepSet{low: s.low | o.low, high: &high}
}

// And is the set of the steps that are in both.
func (s StepSet) And(o StepSet) StepSet {
	if s.high == nil || o.high == nil {
		return StepSet{low: s.low & o.low}
	}
	return s.and(o)
}

func (s StepSet) and(o StepSet) StepSet {
	high := *s.high
	for i, w := range o.high {
		high[i] &= w
	}
	return newSet(s.low&o.low, &high)
}

// AndNot is the set without the steps of the other.
func (s StepSet) AndNot(o StepSet) StepSet {
	if s.high == nil || o.high == nil {
		return StepSet{low: s.low &^ o.low, high: s.high}
	}
	return s.andNot(o)
}

func (s StepSet) andNot(o StepSet) StepSet {
	high := *s.high
	for i, w := range o.high {
		high[i] &^= w
	}
	return newSet(s.low&^o.low, &high)
}

// Meets reports whether a step is in both.
func (s StepSet) Meets(o StepSet) bool {
	if s.low&o.low != 0 {
		return true
	}
	if s.high != nil && o.high != nil {
		for i, w := range o.high {
			if s.high[i]&w != 0 {
				return true
			}
		}
	}
	return false
}

// newSet keeps high only if it has a step, so that two equal sets look alike.
func newSet(low uint64, high *[highWords]uint64) StepSet {
	if *high == ([highWords]uint64{}) {
		return StepSet{low: low}
	}
	return StepSet{low: low, high: high}
}

// Add puts a step into the set.
func (s *StepSet) Add(i int) {
	if uint(i) < wordSteps {
		s.low |= 1 << uint(i)
		return
	}
	s.addHigh(i)
}

// addHigh makes a block of its own: other copies of the set share the one that is there.
func (s *StepSet) addHigh(i int) {
	if s.Has(i) {
		return
	}
	var b StepBuilder
	b.AddAll(*s)
	b.Add(i)
	*s = b.Set()
}

// Remove takes a step out of the set.
func (s *StepSet) Remove(i int) {
	if uint(i) < wordSteps {
		s.low &^= 1 << uint(i)
		return
	}
	if s.Has(i) {
		high := *s.high
		high[uint(i)/wordSteps-1] &^= 1 << (uint(i) % wordSteps)
		*s = newSet(s.low, &high)
	}
}

// String lists the steps.
func (s StepSet) String() string { return string(stepList(s)) }

// StepSetKey is a set as the key of a map.
type StepSetKey [1 + highWords]uint64

// Key is equal for equal sets.
func (s StepSet) Key() (key StepSetKey) {
	key[0] = s.low
	if s.high != nil {
		copy(key[1:], s.high[:])
	}
	return key
}

// Bytes is the set as it is stored: bit i%8 of byte i/8 is set for step i, and the last byte is not 0. The empty set has
// none.
func (s StepSet) Bytes() []byte {
	var all []byte
	s.Each(func(i int) {
		for len(all) <= i/8 {
			all = append(all, 0)
		}
		all[i/8] |= 1 << (i % 8)
	})
	return all
}

// StepSetIn reads Bytes.
func StepSetIn(stored []byte) StepSet {
	var b StepBuilder
	for n, bits := range stored {
		for i := range 8 {
			if bits>>i&1 != 0 {
				b.Add(n*8 + i)
			}
		}
	}
	return b.Set()
}

// StepBuilder collects a set. The zero value has none.
type StepBuilder struct{ set StepSet } // no set shares its high until Set

// Add puts a step in. Numbers that no step can have are left out.
func (b *StepBuilder) Add(i int) {
	if uint(i) < wordSteps {
		b.set.low |= 1 << uint(i)
		return
	}
	b.addHigh(i)
}

func (b *StepBuilder) addHigh(i int) {
	word := uint(i)/wordSteps - 1
	if word >= highWords {
		return
	}
	if b.set.high == nil {
		b.set.high = new([highWords]uint64)
	}
	b.set.high[word] |= 1 << (uint(i) % wordSteps)
}

// AddAll puts all steps of a set in.
func (b *StepBuilder) AddAll(s StepSet) {
	b.set.low |= s.low
	if s.high == nil {
		return
	}
	if b.set.high == nil {
		b.set.high = new([highWords]uint64)
	}
	for i, w := range s.high {
		b.set.high[i] |= w
	}
}

// Has reports whether a step is in.
func (b *StepBuilder) Has(i int) bool { return b.set.Has(i) }

// Set is what was collected. The builder is empty again.
func (b *StepBuilder) Set() StepSet {
	s := b.set
	b.set = StepSet{}
	return s
}
