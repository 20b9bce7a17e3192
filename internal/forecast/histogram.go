package forecast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"duly.dev/duly/internal/core"
)

// Histogram keeps how often durations of each size were observed: log-linear, so that what it says of a duration is wrong
// by an eighth at most. Older observations count less. The zero value is empty.
type Histogram struct {
	counts []float32 // of the buckets from first on
	first  int
	total  float64 // of counts
	never  float64 // weight of what came to no end
	at     core.Instant
}

const (
	// halfLife is after how long an observation counts half.
	halfLife = time.Minute
	// keepWeight is what is left of a histogram however old it is: a plan that runs once a night is still known.
	keepWeight = 64
	// unit is the width of the smallest buckets, and part how many of them there are for each doubling.
	unit     = 16 * time.Microsecond
	part     = 8
	partBits = 3
	buckets  = 320 // up to two years
	// weightUnit is the least weight that is stored.
	weightUnit = 16
)

// bucketOf is the index of the bucket of a duration.
func bucketOf(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	u := uint64(d / unit)
	if u < part {
		return int(u)
	}
	over := bits.Len64(u) - partBits - 1
	return min(part*(over+1)+int(u>>uint(over))&(part-1), buckets-1)
}

// boundsOf is from which duration on, and up to which, a bucket goes.
func boundsOf(bucket int) (from, to time.Duration) {
	low := func(b int) time.Duration {
		if b < part {
			return time.Duration(b) * unit
		}
		over := b/part - 1
		return time.Duration(uint64(part+b%part)<<uint(over)) * unit
	}
	return low(bucket), low(bucket + 1)
}

// Weight is how many observations it holds, as they count now: those that came to an end, and those that did not.
func (h *Histogram) Weight() float64 { return h.total + h.never }

// At is when it was last told anything.
func (h *Histogram) At() core.Instant { return h.at }

// Add notes a duration that was observed at an instant.
func (h *Histogram) Add(d time.Duration, at core.Instant) {
	h.reach(at)
	h.grow(bucketOf(d))
	h.counts[bucketOf(d)-h.first]++
	h.total++
}

// AddNever notes one that came to no end: a step that failed for good.
func (h *Histogram) AddNever(at core.Instant) {
	h.reach(at)
	h.never++
}

// reach is decay for what was observed. What is much older than the newest was observed after the clock was set back, and time
// goes on from there: until then nothing would count less.
func (h *Histogram) reach(at core.Instant) {
	if h.at.Sub(at) > halfLife {
		h.at = at
	}
	h.decay(at)
}

// decay makes everything count less, as of an instant.
func (h *Histogram) decay(at core.Instant) {
	if at <= h.at {
		return
	}
	age := at.Sub(h.at)
	h.at = at
	n := h.Weight()
	if n <= keepWeight {
		return
	}
	h.scale(max(math.Exp2(-float64(age)/float64(halfLife)), keepWeight/n))
}

func (h *Histogram) scale(by float64) {
	for i := range h.counts {
		h.counts[i] *= float32(by)
	}
	h.total *= by
	h.never *= by
}

// grow makes room for a bucket.
func (h *Histogram) grow(bucket int) {
	switch {
	case len(h.counts) == 0:
		h.first, h.counts = bucket, make([]float32, 1)
	case bucket < h.first:
		h.counts = append(make([]float32, h.first-bucket), h.counts...)
		h.first = bucket
	case bucket >= h.first+len(h.counts):
		h.counts = append(h.counts, make([]float32, bucket-h.first-len(h.counts)+1)...)
	}
}

// Merge adds what another has observed. The older of the two is aged to the newer first.
func (h *Histogram) Merge(o *Histogram) {
	if o.Weight() == 0 {
		return
	}
	other := Histogram{counts: append([]float32(nil), o.counts...), first: o.first, total: o.total, never: o.never, at: o.at}
	other.decay(h.at)
	h.decay(other.at)
	for i, n := range other.counts {
		h.grow(other.first + i)
		h.counts[other.first+i-h.first] += n
	}
	h.total += other.total
	h.never += other.never
}

// table fills out with quantiles, which must rise. With never, what came to no end takes part, as infinite.
func (h *Histogram) table(out []float32, quantile func(int) float64, never bool) {
	all := h.total
	if never {
		all += h.never
	}
	bucket, below := 0, 0.0
	for i := range out {
		want := quantile(i) * all
		for bucket < len(h.counts) && (below+float64(h.counts[bucket]) < want || h.counts[bucket] == 0) {
			below += float64(h.counts[bucket])
			bucket++
		}
		switch {
		case bucket < len(h.counts):
			from, to := boundsOf(h.first + bucket)
			out[i] = toMS(from + time.Duration((want-below)/float64(h.counts[bucket])*float64(to-from)))
		case never && h.never > 0:
			out[i] = infinite
		case len(h.counts) > 0:
			_, to := boundsOf(h.first + len(h.counts) - 1)
			out[i] = toMS(to)
		default:
			out[i] = 0
		}
	}
}

// Durations within a question are milliseconds; infinite: never.
var infinite = float32(math.Inf(1))

func toMS(d time.Duration) float32 { return float32(float64(d) / float64(time.Millisecond)) }

// fromMS is a duration, cut to what any task may take.
func fromMS(ms float32) time.Duration {
	return time.Duration(min(float64(ms), float64(core.DurationMax.Milliseconds())) * float64(time.Millisecond))
}

const encoding = 1 // of histograms, as stored

// AppendBinary appends its bytes: a few for each size of duration that it has seen.
func (h *Histogram) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, encoding)
	b = binary.AppendVarint(b, int64(h.at))
	b = binary.AppendUvarint(b, stored(h.never))
	b = binary.AppendUvarint(b, uint64(h.first))
	b = binary.AppendUvarint(b, uint64(len(h.counts)))
	for _, n := range h.counts {
		b = binary.AppendUvarint(b, stored(float64(n)))
	}
	return b, nil
}

func stored(weight float64) uint64 { return uint64(math.Round(weight * weightUnit)) }

var errHistogram = errors.New("histogram: its bytes make no sense")

// decodeHistogram reads a histogram, and returns what follows it.
func decodeHistogram(b []byte) (h Histogram, rest []byte, err error) {
	if len(b) == 0 || b[0] != encoding {
		return h, nil, fmt.Errorf("%w: it begins with none of %d", errHistogram, encoding)
	}
	b = b[1:]
	at, n := binary.Varint(b)
	if n <= 0 {
		return h, nil, errHistogram
	}
	b, h.at = b[n:], core.Instant(at)
	var numbers [3]uint64 // never, first, how many counts
	for i := range numbers {
		if numbers[i], n = binary.Uvarint(b); n <= 0 {
			return h, nil, errHistogram
		}
		b = b[n:]
	}
	h.never = float64(numbers[0]) / weightUnit
	if numbers[1] >= buckets || numbers[2] > buckets-numbers[1] {
		return h, nil, fmt.Errorf("%w: buckets %d to %d of %d", errHistogram, numbers[1], numbers[1]+numbers[2], buckets)
	}
	h.first, h.counts = int(numbers[1]), make([]float32, numbers[2])
	for i := range h.counts {
		count, n := binary.Uvarint(b)
		if n <= 0 {
			return h, nil, errHistogram
		}
		b = b[n:]
		h.counts[i] = float32(count) / weightUnit
		h.total += float64(h.counts[i])
	}
	return h, b, nil
}
