package shop

import (
	"strconv"
	"testing"
)

// TestShares: among many orders every trouble of the package comment is there, in about its share.
func TestShares(t *testing.T) {
	counts := map[string]int{}
	const orders = 20_000
	for i := range orders {
		id := "order-" + string(rune('a'+i%26)) + "-" + strconv.Itoa(i)
		switch n := share(id); {
		case n < 4:
			counts["stock"]++
		case n < 7:
			counts["card"]++
		case n < 11:
			counts["gateway"]++
		case n < 13:
			counts["address"]++
			if OrderNumber(id).Address != noAddress {
				t.Errorf("order %s has a known address", id)
			}
		case n == 13:
			counts["undo"]++
		}
	}
	for trouble, percent := range map[string]int{"stock": 4, "card": 3, "gateway": 4, "address": 2, "undo": 1} {
		if got := counts[trouble] * 100 / orders; got < percent-1 || got > percent+1 {
			t.Errorf("trouble %s meets %d of %d orders, want about %d %%", trouble, counts[trouble], orders, percent)
		}
	}
}
