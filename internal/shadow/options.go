package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/option"
	"duly.dev/duly/internal/wire"
)

// The defaults and limits of [Options].
const (
	forDefault      = time.Minute
	forMost         = 24 * time.Hour
	inFlightDefault = 256
	inFlightMost    = 1 << 16
	keptDefault     = 20
	keptMost        = 1000
	ignoreMost      = 100
)

// Options of [Run].
type Options struct {
	Names  wire.Names
	Agent  string // whose commands are copied
	Shadow string // the agent without effects that gets the copies

	For      time.Duration // how long copies are made; 0: forDefault
	Count    int           // it ends when so many are compared; 0: it does not
	Percent  int           // of the commands that are copied; 0: 100
	InFlight int           // commands without both answers at a time; one more is not copied. 0: inFlightDefault
	Kept     int           // differences that the report has; all are counted. 0: keptDefault
	Ignore   []string      // what may differ in results: JSON pointers, in which * is any one member or element
	Values   bool          // the report has the values that differ, not only where
}

// complete fills in the defaults and refuses what cannot be.
func (o Options) complete() (Options, error) {
	o.For, o.Percent = cmp.Or(o.For, forDefault), cmp.Or(o.Percent, 100)
	o.InFlight, o.Kept = cmp.Or(o.InFlight, inFlightDefault), cmp.Or(o.Kept, keptDefault)
	for _, n := range []struct{ option, name string }{{"agent", o.Agent}, {"shadow", o.Shadow}} {
		if err := core.CheckAgent(n.name); err != nil {
			return o, option.Refuse(n.option, err)
		}
	}
	if o.Agent == o.Shadow {
		return o, option.Refuse("shadow", errors.New("is the agent itself"))
	}
	for _, n := range []struct {
		option        string
		is, min, most int
	}{{"count", o.Count, 0, 1 << 30}, {"percent", o.Percent, 1, 100}, {"in-flight", o.InFlight, 1, inFlightMost}, {"kept", o.Kept, 1, keptMost}, {"ignore", len(o.Ignore), 0, ignoreMost}} {
		if n.is < n.min || n.is > n.most {
			return o, option.Refuse(n.option, fmt.Errorf("%d, want %d to %d", n.is, n.min, n.most))
		}
	}
	if o.For < time.Second || o.For > forMost {
		return o, option.Refuse("for", fmt.Errorf("%v, want %v to %v", o.For, time.Second, forMost))
	}
	for _, pointer := range o.Ignore {
		if pointer != "" && !strings.HasPrefix(pointer, "/") {
			return o, option.Refuse("ignore", fmt.Errorf("%s is no JSON pointer: want it to begin with /", core.QuoteShort(pointer)))
		}
	}
	return o, nil
}
