package schedule

import (
	_ "embed" // the list of zones
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the zones, whatever the machine has

	"duly.dev/duly/internal/core"
)

//go:embed zones.txt
var zoneList string

// zones are the names of all zones, which the library of times cannot list.
var zones = sync.OnceValue(func() []string { return strings.Fields(zoneList) })

// loaded are the zones that were read, by name: no more than there are.
var loaded sync.Map

// zoneOf finds a zone by its name.
func zoneOf(name string) (*time.Location, *FieldError) {
	if name == "" {
		return time.UTC, nil
	}
	if _, found := slices.BinarySearch(zones(), name); found { // not what this machine may have besides
		if zone, ok := loaded.Load(name); ok {
			return zone.(*time.Location), nil
		}
		zone, err := time.LoadLocation(name)
		if err != nil {
			return nil, wrong("zone", "%s cannot be read: %v", name, err)
		}
		loaded.Store(name, zone)
		return zone, nil
	}
	if near := nearest(name, zones()); near != "" {
		return nil, wrong("zone", "%s is no time zone: is %s meant?", core.QuoteShort(name), near)
	}
	return nil, wrong("zone", "%s is no time zone, want a name of the IANA database, such as Europe/Berlin", core.QuoteShort(name))
}

// nearest is the name that a person may have meant; empty: none is near. A city alone is near.
func nearest(name string, names []string) string {
	if len(name) > core.NameBytesMax {
		return ""
	}
	wanted := plainZone(name)
	best, least := "", len(wanted)/4+2
	for _, candidate := range names {
		whole := plainZone(candidate)
		_, city, ok := cutLast(whole)
		d := distance(wanted, whole)
		if ok && len(city) > 3 {
			d = min(d, distance(wanted, city))
		}
		if d < least {
			best, least = candidate, d
		}
	}
	return best
}

func plainZone(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "_", "-", "_").Replace(strings.TrimSpace(name)))
}

func cutLast(name string) (area, city string, found bool) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:], true
	}
	return name, "", false
}

// distance is how many bytes have to be put in, left out or replaced to make one text of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			other := corner
			if a[i] != b[j] {
				other++
			}
			corner = row[j+1]
			row[j+1] = min(other, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
