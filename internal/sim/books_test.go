package sim

import "testing"

// Whatever the transport below an agent repeats, a service that remembers its keys takes for the first request; one that
// does not is caught, though Duly itself sends everything once.
func TestTransportRepeats(t *testing.T) {
	for _, remembers := range []bool{true, false} {
		w := New(Draw(1))
		w.odds = [faultCount]float64{}
		if !remembers {
			w.books.keyMemory = 0
		}
		err := w.Run()
		if w.happened[TransportRepeats] == 0 {
			t.Error("the transport repeats nothing")
		}
		if remembers != (err == nil) {
			t.Errorf("a service remembers its keys: %t: %v", remembers, err)
		}
	}
}
