package drone

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a request.
const (
	IDBytesMax    = 64   // deliveryId, ownerId, packageId
	PlaceBytesMax = 256  // pickupLocation, dropOffLocation
	TagBytesMax   = 128  // packageInfo.tag
	WeightMax     = 1000 // packageInfo.weight, kilograms
)

// FieldError says what is wrong with one field.
type FieldError struct {
	Field string `json:"field"`
	Value string `json:"value"` // as given, cut when long
	Limit string `json:"limit"` // what would be accepted
}

// Error names field, value and limit.
func (e FieldError) Error() string {
	return fmt.Sprintf("%s is %s, want %s", e.Field, e.Value, e.Limit)
}

// InvalidError is everything that is wrong with one request.
type InvalidError struct {
	Fields []FieldError
}

// Error lists every field.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Error()
	}
	return "delivery request: " + strings.Join(parts, "; ")
}

// Validate returns nil or an *InvalidError that names every bad field at once,
// so that a caller need not mend them one by one.
func (r *Request) Validate() error {
	var v validation
	v.id("deliveryId", r.DeliveryID)
	v.text("ownerId", r.OwnerID, 1, IDBytesMax)
	v.text("pickupLocation", r.PickupLocation, 1, PlaceBytesMax)
	v.text("dropOffLocation", r.DropOffLocation, 1, PlaceBytesMax)
	pickup := v.instant("pickupTime", r.PickupTime)
	deadline := v.instant("deadline", r.Deadline)
	if !pickup.IsZero() && !deadline.IsZero() && deadline.Before(pickup) {
		v.bad("deadline", r.Deadline, "a time not before pickupTime "+r.PickupTime)
	}
	switch r.ConfirmationRequired {
	case "", ConfirmFingerPrint, ConfirmPicture, ConfirmVoice, ConfirmNone:
	default:
		v.bad("confirmationRequired", string(r.ConfirmationRequired), "FingerPrint, Picture, Voice or None")
	}
	v.packageInfo(&r.PackageInfo)
	if v.fields == nil {
		return nil
	}
	return &InvalidError{Fields: v.fields}
}

// validation collects what is wrong.
type validation struct {
	fields []FieldError
}

func (v *validation) bad(field, value, limit string) {
	v.fields = append(v.fields, FieldError{Field: field, Value: quoteShort(value), Limit: limit})
}

func (v *validation) packageInfo(p *PackageInfo) {
	v.text("packageInfo.packageId", p.PackageID, 1, IDBytesMax)
	v.text("packageInfo.tag", p.Tag, 0, TagBytesMax)
	switch p.Size {
	case SizeSmall, SizeMedium, SizeLarge:
	default:
		v.bad("packageInfo.size", string(p.Size), "Small, Medium or Large")
	}
	if math.IsNaN(p.Weight) || p.Weight <= 0 || p.Weight > WeightMax {
		v.fields = append(v.fields, FieldError{
			Field: "packageInfo.weight",
			Value: strconv.FormatFloat(p.Weight, 'g', -1, 64),
			Limit: fmt.Sprintf("more than 0 and at most %d kg", WeightMax),
		})
	}
}

// id holds the delivery's id to the alphabet of task ids, because it is one.
func (v *validation) id(field, value string) {
	ok := len(value) >= 1 && len(value) <= IDBytesMax
	for i := 0; i < len(value) && ok; i++ {
		ok = idByte(value[i])
	}
	if !ok {
		v.bad(field, value, fmt.Sprintf("1 to %d characters of A–Z a–z 0–9 _ -", IDBytesMax))
	}
}

func idByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// text refuses NUL as well: no database stores it in a text column.
func (v *validation) text(field, value string, least, most int) {
	if len(value) < least || len(value) > most || strings.IndexByte(value, 0) >= 0 || !utf8.ValidString(value) {
		v.bad(field, value, fmt.Sprintf("%d to %d bytes of UTF-8 without NUL", least, most))
	}
}

// instant returns the zero time for an empty or a refused value.
func (v *validation) instant(field, value string) time.Time {
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		v.bad(field, value, "a time like 2026-01-31T09:30:00Z (RFC 3339)")
		return time.Time{}
	}
	return t
}

// quoteShort quotes a value for an error without repeating megabytes of it.
func quoteShort(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}
