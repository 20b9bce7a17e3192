package drone

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// FuzzValidate: a request that passes survives its own JSON, and one that does
// not is told field by field, in bounded text.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(`{"deliveryId":"d-1","ownerId":"o","pickupLocation":"a","dropoffLocation":"b","packageInfo":{"packageId":"p","size":"Small","weight":1.5}}`))
	f.Add([]byte(`{"deliveryId":"..","pickupTime":"2026-01-31T09:30:00Z","deadline":"2025-01-31T09:30:00Z","confirmationRequired":"x","packageInfo":{"weight":-1e308}}`))
	f.Add([]byte(`{"ownerId":"\u0000","packageInfo":{"tag":"` + strings.Repeat("x", 200) + `","weight":1e999}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if json.Unmarshal(data, &r) != nil {
			return
		}
		err := r.Validate()
		if err == nil {
			again, err := json.Marshal(r)
			var back Request
			if err != nil || json.Unmarshal(again, &back) != nil || back != r {
				t.Fatalf("%+v became %+v, %v", r, back, err)
			}
			return
		}
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Fields) == 0 {
			t.Fatalf("error %v names no field", err)
		}
		for _, field := range invalid.Fields {
			if field.Field == "" || field.Limit == "" || len(field.Value) > 400 || len(field.Limit) > 600 {
				t.Fatalf("field %.1000q", field)
			}
		}
	})
}
