package drone

import "fmt"

// Faults are the shares, from 0 to 1, of what goes wrong.
type Faults struct {
	Refused   float64 // of tasks: the account is suspended; final
	Transient float64 // of calls: an error that is worth another try; one in four comes after the effect
	TimedOut  float64 // of calls: the service hangs past the complete-by
	Silent    float64 // of calls: the agent dies and never answers
	Doubled   float64 // of replies: sent twice; see Tamper
	Dropped   float64 // of replies: lost on the way; see Tamper
}

// The levels of faults that the demo knows.
var (
	FaultsNone  = Faults{}
	FaultsSome  = Faults{Refused: 0.03, Transient: 0.05, TimedOut: 0.01, Silent: 0.005}
	FaultsStorm = Faults{Refused: 0.05, Transient: 0.15, TimedOut: 0.03, Silent: 0.02, Doubled: 0.005, Dropped: 0.005}
)

// FaultsNamed returns the level of that name: none, some or storm.
func FaultsNamed(name string) (Faults, error) {
	switch name {
	case "none":
		return FaultsNone, nil
	case "some":
		return FaultsSome, nil
	case "storm":
		return FaultsStorm, nil
	}
	return Faults{}, fmt.Errorf("faults is %q, want none, some or storm", name)
}

// Validate refuses shares outside 0 to 1, also where they add up.
func (f Faults) Validate() error {
	for _, s := range []struct {
		name  string
		share float64
	}{
		{"refused", f.Refused},
		{"transient", f.Transient}, {"timed out", f.TimedOut}, {"silent", f.Silent},
		{"transient, timed out and silent together", f.Transient + f.TimedOut + f.Silent},
		{"doubled", f.Doubled}, {"dropped", f.Dropped},
		{"doubled and dropped together", f.Doubled + f.Dropped},
	} {
		if !(s.share >= 0 && s.share <= 1) { // NaN is refused too
			return fmt.Errorf("faults: share %s is %v, want 0 to 1", s.name, s.share)
		}
	}
	return nil
}

// fault is what goes wrong with one call.
type fault uint8

const (
	faultNone fault = iota
	faultTransient
	faultHang   // the service is stuck past the complete-by
	faultSilent // the agent dies
)

func (f *Faults) perCall() bool { return f.Transient+f.TimedOut+f.Silent > 0 }

// pick maps one uniform draw to a fault, so that their shares add up.
func (f *Faults) pick(u float64) fault {
	if u -= f.Transient; u < 0 {
		return faultTransient
	}
	if u -= f.TimedOut; u < 0 {
		return faultHang
	}
	if u -= f.Silent; u < 0 {
		return faultSilent
	}
	return faultNone
}

// PlantedFault is a way in which a service can break its promise, so that a
// test can see the checker find it. No level of faults plants any.
type PlantedFault uint8

// The planted faults.
const (
	PlantDouble PlantedFault = iota + 1 // a do takes effect twice: doubled
	PlantGhost                          // a do takes effect although its tombstone stands: doubled
	PlantForget                         // a do answers well without any effect: half-done
	PlantKeep                           // an undo answers well and leaves the effect: half-done
)

// Plant breaks one step of a share of the tasks.
type Plant struct {
	Fault PlantedFault
	Step  Step
	Share float64 // of tasks, 0 to 1
}

// planted reports whether the fault is planted in this call's step and task.
func (s *Service) planted(f PlantedFault, c *call) bool {
	for _, p := range s.plants {
		if p.Fault == f && p.Step == c.step && unit(mix(s.seed^c.hash^saltPlant)) < p.Share {
			return true
		}
	}
	return false
}
