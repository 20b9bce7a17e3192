package core

import (
	"math/rand/v2"
	"time"
)

// tape is where the choices of a life come from: drawn from a seed and kept, or played again from what is left of them.
// A choice that is not on the tape is 0, and 0 is the simplest of every choice, so that what fails can be made short.
type tape struct {
	rng     *rand.Rand // nil: it is played
	choices []uint16
	at      int
}

func newTape(seed uint64) *tape { return &tape{rng: rand.New(rand.NewPCG(seed, 25))} }

// n is one of 0 … n-1.
func (c *tape) n(n int) int {
	if c.rng != nil {
		v := c.rng.IntN(n)
		c.choices = append(c.choices, uint16(v))
		return v
	}
	if c.at >= len(c.choices) {
		return 0
	}
	v := int(c.choices[c.at]) % n
	c.at++
	return v
}

// one is true once in n.
func (c *tape) one(n int) bool { return c.n(n) == n-1 }

// span is lo to hi tenths of a second.
func (c *tape) span(lo, hi int) time.Duration {
	return time.Duration(lo+c.n(hi-lo+1)) * 100 * time.Millisecond
}

func choose[T any](c *tape, of ...T) T { return of[c.n(len(of))] }

// shorten looks for fewer and smaller choices that still fail; fails says how a tape's life fails, empty: it does not.
func shorten(choices []uint16, fails func([]uint16) string) (short []uint16, how string) {
	short, how = choices, fails(choices)
	try := func(c []uint16) bool {
		text := fails(c)
		if text == "" {
			return false
		}
		short, how = c, text
		return true
	}
	for tries, better := 0, true; better && tries < 40; tries++ {
		better = false
		for size := max(1, len(short)/2); size >= 1; size /= 2 {
			for at := 0; at+size <= len(short); {
				if try(append(append([]uint16{}, short[:at]...), short[at+size:]...)) {
					better = true
				} else {
					at += size
				}
			}
		}
		for at := range short {
			for _, v := range []uint16{0, short[at] / 2, short[at] - 1} {
				if at >= len(short) || short[at] == 0 || v >= short[at] {
					continue
				}
				c := append([]uint16{}, short...)
				c[at] = v
				if try(c) {
					better = true
				}
			}
			if at >= len(short)-1 {
				break
			}
		}
	}
	return short, how
}
