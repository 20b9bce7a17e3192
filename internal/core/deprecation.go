package core

import "fmt"

// Deprecation marks a stored version of a plan: nothing begins by it, whether it names the version or none, and no child that is
// not born yet. What is in flight keeps its version.
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

// DeprecatedPlan says why a submission is refused that names a deprecated version, or none (0) where all are deprecated.
func DeprecatedPlan(taskType string, version int64) string {
	if version == 0 {
		return fmt.Sprintf("every stored version of the plan of type %s is deprecated: apply a new one", QuoteShort(taskType))
	}
	return fmt.Sprintf("version %d of the plan of type %s is deprecated: name another version or none", version, QuoteShort(taskType))
}
