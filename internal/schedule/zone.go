package schedule

import (
	_ "embed" // the list of zones
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the zones, whatever the machine has

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
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
	if meant := nearest(name, zones()); meant != "" {
		return nil, wrong("zone", "%s is no time zone: is %s meant?", core.QuoteShort(name), meant)
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
		d := near.Distance(wanted, whole)
		if ok && len(city) > 3 {
			d = min(d, near.Distance(wanted, city))
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
