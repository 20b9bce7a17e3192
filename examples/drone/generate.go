package drone

import (
	"strconv"
	"time"
)

// Generator makes deliveries that look like real ones. Delivery i of a seed is
// always the same, in whatever order they are asked for. Safe for concurrent use.
type Generator struct {
	seed  uint64
	start time.Time
}

// NewGenerator returns the generator of a seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{
		seed:  mix(seed ^ saltGenerator),
		start: time.Date(2026, time.January, 5, 8, 0, 0, 0, time.UTC),
	}
}

var (
	streets  = [...]string{"Pine Street", "4th Avenue", "Harbour Road", "Mill Lane", "Station Square", "Oak Drive", "Castle Hill", "Union Way", "River Walk", "Market Place"}
	towns    = [...]string{"Ballard", "Fremont", "Northgate", "Queen Anne", "Rainier Valley", "Beacon Hill", "Magnolia", "Greenwood"}
	tags     = [...]string{"", "fragile", "groceries", "medicine", "documents", "spare-parts", "flowers"}
	confirms = [...]Confirmation{ConfirmNone, ConfirmNone, ConfirmPicture, ConfirmFingerPrint, ConfirmVoice}
	// Most packages are small; the weights' upper ends follow the size.
	sizes   = [...]Size{SizeSmall, SizeSmall, SizeSmall, SizeMedium, SizeMedium, SizeLarge}
	grammes = map[Size]uint64{SizeSmall: 2_000, SizeMedium: 8_000, SizeLarge: 25_000}
)

// Request returns delivery i of the seed. It passes Validate.
func (g *Generator) Request(i int) Request {
	d := dice{state: g.seed + uint64(i)*saltStep}
	pickup := g.start.Add(time.Duration(d.below(14*24*60)) * time.Minute)
	expedited := d.below(10) == 0
	window := time.Duration(2+d.below(22)) * time.Hour
	if expedited {
		window = time.Hour
	}
	size := sizes[d.below(uint64(len(sizes)))]
	return Request{
		DeliveryID:           d.uuid(),
		OwnerID:              "owner-" + strconv.FormatUint(d.below(50_000), 10),
		PickupLocation:       d.place(),
		DropOffLocation:      d.place(),
		PickupTime:           pickup.Format(time.RFC3339),
		Deadline:             pickup.Add(window).Format(time.RFC3339),
		Expedited:            expedited,
		ConfirmationRequired: confirms[d.below(uint64(len(confirms)))],
		PackageInfo: PackageInfo{
			PackageID: "package-" + strconv.FormatUint(d.next()>>20, 36),
			Size:      size,
			Weight:    float64(50+d.below(grammes[size])) / 1000,
			Tag:       tags[d.below(uint64(len(tags)))],
		},
	}
}

// dice is a sequence of draws that costs nothing to begin: a splitmix64.
type dice struct {
	state uint64
}

func (d *dice) next() uint64 {
	d.state += saltStep
	return mix(d.state)
}

// below draws from [0, n). The bias is far under what a simulation can see.
func (d *dice) below(n uint64) uint64 { return d.next() % n }

func (d *dice) place() string {
	return strconv.FormatUint(1+d.below(240), 10) + " " +
		streets[d.below(uint64(len(streets)))] + ", " + towns[d.below(uint64(len(towns)))]
}

func (d *dice) uuid() string { return formatUUID(d.next(), d.next()) }

// formatUUID writes 128 bits in the form of a random UUID (version 4, RFC 9562).
func formatUUID(hi, lo uint64) string {
	const digits = "0123456789abcdef"
	hi, lo = hi&^0xf000|0x4000, lo&^(3<<62)|2<<62
	var out [36]byte
	at := 0
	for i := range 32 {
		if i == 8 || i == 12 || i == 16 || i == 20 {
			out[at] = '-'
			at++
		}
		word := hi
		if i >= 16 {
			word = lo
		}
		out[at] = digits[word>>(60-4*uint(i%16))&15]
		at++
	}
	return string(out[:])
}
