package drone

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestValidateNamesFieldValueAndLimit(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Request)
		want   string // the whole error after its beginning; empty: accepted
	}{
		{"as generated", func(*Request) {}, ""},
		{"no times", func(r *Request) { r.PickupTime, r.Deadline = "", "" }, ""},
		{"no confirmation", func(r *Request) { r.ConfirmationRequired = "" }, ""},
		{"id empty", func(r *Request) { r.DeliveryID = "" }, `deliveryId is "", want 1 to 64 characters of A–Z a–z 0–9 _ -`},
		{"id with a dot", func(r *Request) { r.DeliveryID = "a.b" }, `deliveryId is "a.b", want 1 to 64 characters of A–Z a–z 0–9 _ -`},
		{"id too long", func(r *Request) { r.DeliveryID = strings.Repeat("x", 65) },
			`deliveryId is "` + strings.Repeat("x", 64) + `"… (65 bytes), want 1 to 64 characters of A–Z a–z 0–9 _ -`},
		{"owner missing", func(r *Request) { r.OwnerID = "" }, `ownerId is "", want 1 to 64 bytes of UTF-8 without NUL`},
		{"place with NUL", func(r *Request) { r.PickupLocation = "a\x00b" }, `pickupLocation is "a\x00b", want 1 to 256 bytes of UTF-8 without NUL`},
		{"place not UTF-8", func(r *Request) { r.DropOffLocation = "\xff" }, `dropOffLocation is "\xff", want 1 to 256 bytes of UTF-8 without NUL`},
		{"pickup no time", func(r *Request) { r.PickupTime = "noon" }, `pickupTime is "noon", want a time like 2026-01-31T09:30:00Z (RFC 3339)`},
		{"deadline before pickup", func(r *Request) { r.PickupTime, r.Deadline = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z" },
			`deadline is "2026-01-01T00:00:00Z", want a time not before pickupTime 2026-01-02T00:00:00Z`},
		{"confirmation", func(r *Request) { r.ConfirmationRequired = "Handshake" }, `confirmationRequired is "Handshake", want FingerPrint, Picture, Voice or None`},
		{"package id", func(r *Request) { r.PackageInfo.PackageID = "" }, `packageInfo.packageId is "", want 1 to 64 bytes of UTF-8 without NUL`},
		{"size", func(r *Request) { r.PackageInfo.Size = "small" }, `packageInfo.size is "small", want Small, Medium or Large`},
		{"tag", func(r *Request) { r.PackageInfo.Tag = "\x00" }, `packageInfo.tag is "\x00", want 0 to 128 bytes of UTF-8 without NUL`},
		{"weight zero", func(r *Request) { r.PackageInfo.Weight = 0 }, `packageInfo.weight is 0, want more than 0 and at most 1000 kg`},
		{"weight over", func(r *Request) { r.PackageInfo.Weight = 1000.5 }, `packageInfo.weight is 1000.5, want more than 0 and at most 1000 kg`},
		{"weight NaN", func(r *Request) { r.PackageInfo.Weight = math.NaN() }, `packageInfo.weight is NaN, want more than 0 and at most 1000 kg`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := NewGenerator(1).Request(0)
			test.change(&r)
			err := r.Validate()
			if test.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var invalid *InvalidError
			if !errors.As(err, &invalid) || len(invalid.Fields) != 1 {
				t.Fatalf("error %v, want one field", err)
			}
			if got := strings.TrimPrefix(err.Error(), "delivery request: "); got != test.want {
				t.Errorf("error\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestValidateNamesAllFields(t *testing.T) {
	err := (&Request{}).Validate()
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v", err)
	}
	// deliveryId, ownerId, two places, packageId, size, weight.
	if len(invalid.Fields) != 7 {
		t.Errorf("%d fields named, want 7: %v", len(invalid.Fields), err)
	}
}

// The names on the wire are the reference application's.
//
// covers: D11
func TestRequestJSON(t *testing.T) {
	const text = `{"deliveryId":"d1","ownerId":"o1","pickupLocation":"a","dropOffLocation":"b","pickupTime":"2026-01-05T08:00:00Z",` +
		`"deadline":"2026-01-05T09:00:00Z","expedited":true,"confirmationRequired":"FingerPrint",` +
		`"packageInfo":{"packageId":"p1","size":"Small","weight":1.5,"tag":"x"}}`
	var r Request
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if string(back) != text {
		t.Errorf("got  %s\nwant %s", back, text)
	}
	var queue Request
	if err := json.Unmarshal([]byte(`{"dropoffLocation":"b"}`), &queue); err != nil || queue.DropOffLocation != "b" {
		t.Errorf("the queue's spelling: %q, %v", queue.DropOffLocation, err)
	}
}

// covers: D11
func TestGenerator(t *testing.T) {
	const n = 5_000
	g := NewGenerator(7)
	ids := make(map[string]bool, n)
	for i := range n {
		r := g.Request(i)
		if err := r.Validate(); err != nil {
			t.Fatalf("delivery %d: %v", i, err)
		}
		if ids[r.DeliveryID] {
			t.Fatalf("delivery %d: id %s was there before", i, r.DeliveryID)
		}
		ids[r.DeliveryID] = true
	}
	if NewGenerator(7).Request(3) != g.Request(3) {
		t.Error("the same seed gave another delivery")
	}
	if ids[NewGenerator(8).Request(0).DeliveryID] {
		t.Error("another seed gave the same delivery")
	}
	id := g.Request(0).DeliveryID
	if len(id) != 36 || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
		t.Errorf("id %s has not the form of a random UUID", id)
	}
}
