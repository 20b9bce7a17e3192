package core

// Deprecation marks a stored version of a plan: a submission that names no version does not take it. What is in flight
// keeps its version, and a submission that names the version is taken.
type Deprecation struct {
	Name    string
	Version int64
	At      Instant
}

// Deprecations are all of them.
type Deprecations []Deprecation

// Has reports whether a version of a plan is marked.
func (all Deprecations) Has(name string, version int64) bool { return all.Since(name, version) != 0 }

// Since is when a version of a plan was marked; 0: it is not.
func (all Deprecations) Since(name string, version int64) Instant {
	for i := range all {
		if all[i].Name == name && all[i].Version == version {
			return all[i].At
		}
	}
	return 0
}

// Current returns those of the plans that are not marked.
func (all Deprecations) Current(plans UnreadablePlans) UnreadablePlans {
	if len(all) == 0 {
		return plans
	}
	var current UnreadablePlans
	for _, u := range plans {
		if !all.Has(u.Name, u.Version) {
			current = append(current, u)
		}
	}
	return current
}
