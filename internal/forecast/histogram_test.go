package forecast

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
)

const second = core.Instant(time.Second / time.Microsecond)

// TestBuckets: every duration is within the bounds of its bucket, and buckets are an eighth of their durations wide.
func TestBuckets(t *testing.T) {
	for d := time.Duration(1); d < 600*24*time.Hour; d += d/7 + 1 {
		b := bucketOf(d)
		from, to := boundsOf(b)
		if d < from || d >= to {
			t.Fatalf("%v is in bucket %d, of %v to %v", d, b, from, to)
		}
		if d > part*unit && to-from > from/part {
			t.Fatalf("bucket %d of %v to %v is wider than an eighth", b, from, to)
		}
	}
	if b := bucketOf(math.MaxInt64); b >= buckets {
		t.Errorf("the longest duration is in bucket %d of %d", b, buckets)
	}
}

// TestQuantiles compares with the exact quantiles of what was observed.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var exact []time.Duration
	for range 5000 {
		d := time.Duration(r.ExpFloat64() * float64(80*time.Millisecond))
		exact = append(exact, d)
		h.Add(d, second)
	}
	slices.Sort(exact)
	for _, q := range []float64{0.1, 0.5, 0.9, 0.95, 0.99} {
		got, want := h.Quantile(q), exact[int(q*float64(len(exact)))]
		if diff := (got - want).Abs(); diff > want/part {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

// TestDecay: what is old counts less, and what is very old is not forgotten altogether.
func TestDecay(t *testing.T) {
	var h Histogram
	for range 1024 {
		h.Add(time.Second, second)
	}
	h.Add(time.Minute, second.Add(2*halfLife))
	if w := h.Weight(); math.Abs(w-257) > 0.1 {
		t.Errorf("after two half-lives 1,024 observations and a new one weigh %v, want 257", w)
	}
	h.Add(time.Minute, second.Add(time.Hour))
	if w := h.Weight(); math.Abs(w-keepWeight-1) > 0.1 {
		t.Errorf("after an hour they weigh %v, want %d", w, keepWeight+1)
	}
	for i := range 200 {
		h.Add(time.Minute, second.Add(2*time.Hour+time.Duration(i)*time.Second))
	}
	if got := h.Quantile(0.5); got < 50*time.Second {
		t.Errorf("after 200 newer ones of a minute the median is %v", got)
	}
}

// TestDecayAfterClockSetBack: what was observed before the clock was set back counts less from then on, too.
func TestDecayAfterClockSetBack(t *testing.T) {
	var h Histogram
	for range 1024 {
		h.Add(time.Second, second.Add(2*time.Hour))
	}
	for i := range 600 {
		h.Add(time.Minute, second.Add(time.Duration(i)*time.Second))
	}
	if got := h.Quantile(0.5); got < 50*time.Second {
		t.Errorf("after ten minutes of a minute each the median is %v", got)
	}
}

// TestMerge: two histograms are what one would be that had observed all.
func TestMerge(t *testing.T) {
	var a, b, all Histogram
	for i := range 600 {
		d := time.Duration(i) * time.Millisecond
		all.Add(d, second)
		if i%3 == 0 {
			a.Add(d, second)
		} else {
			b.Add(d, second)
		}
	}
	b.AddNever(second)
	all.AddNever(second)
	a.Merge(&b)
	if a.Weight() != all.Weight() || a.Quantile(0.5) != all.Quantile(0.5) || a.Quantile(0.99) != all.Quantile(0.99) {
		t.Errorf("merged: weight %v, median %v, want %v, %v", a.Weight(), a.Quantile(0.5), all.Weight(), all.Quantile(0.5))
	}
	if was := b.Weight(); was != 401 {
		t.Errorf("the one that was merged weighs %v, want its 401", was)
	}
}

// TestBytes: a histogram that was stored is the same, and is small; bytes that make no sense are refused.
func TestBytes(t *testing.T) {
	var h Histogram
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		h.Add(time.Duration(r.ExpFloat64()*float64(time.Second)), 77*second)
	}
	h.AddNever(78 * second)
	data, err := h.AppendBinary(nil)
	if err != nil || len(data) > 400 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	got, rest, err := decodeHistogram(append(data, 9))
	if err != nil || len(rest) != 1 || rest[0] != 9 {
		t.Fatalf("rest %v, %v", rest, err)
	}
	if math.Abs(got.Weight()-h.Weight()) > 2 || got.at != h.at || (got.Quantile(0.9)-h.Quantile(0.9)).Abs() > h.Quantile(0.9)/part {
		t.Errorf("weight %v at %v, 0.9 %v; want %v at %v, %v", got.Weight(), got.at, got.Quantile(0.9), h.Weight(), h.at, h.Quantile(0.9))
	}
	for i := range data {
		if _, _, err := decodeHistogram(data[:i]); !errors.Is(err, errHistogram) {
			t.Errorf("its first %d bytes: %v", i, err)
		}
	}
	if _, _, err := decodeHistogram([]byte{encoding, 0, 0, 0xff, 0xff, 0x7f, 1}); !errors.Is(err, errHistogram) {
		t.Errorf("a bucket that is none: %v", err)
	}
}

// FuzzHistogram: no bytes make it fail otherwise than by its error.
func FuzzHistogram(f *testing.F) {
	var h Histogram
	h.Add(time.Second, second)
	data, _ := h.AppendBinary(nil)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, _, err := decodeHistogram(data)
		if err != nil && !errors.Is(err, errHistogram) {
			t.Fatal(err)
		}
		if err == nil {
			h.Add(time.Second, max(h.at, 0))
			h.Quantile(0.5)
		}
	})
}

// Quantile is the duration that a part q of those that came to an end did not exceed; 0 where there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	var out [1]float32
	h.table(out[:], func(int) float64 { return q }, false)
	return fromMS(out[0])
}
