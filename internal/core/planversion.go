package core

import "fmt"

// NewestVersion is how a submission says that it takes the highest stored version
// of its plan; saying nothing means the same.
const NewestVersion = "newest"

// ParsePlanVersion reads the plan version that a submission names: a number of 1 or
// more, or NewestVersion or nothing, which are 0. The error names the value.
func ParsePlanVersion(text string) (int64, error) {
	if text == "" || text == NewestVersion {
		return 0, nil
	}
	var n int64
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c < '0' || c > '9' || i == 18 || n == 0 && c == '0' {
			return 0, fmt.Errorf("plan version %s is not a whole number of 1 or more, nor %s", QuoteShort(text), NewestVersion)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// PlanKey names one version of a plan.
type PlanKey struct {
	Name    string
	Version int64
}

// PlansByKey are plans by their names and versions.
func PlansByKey(plans []Plan) map[PlanKey]*Plan {
	all := make(map[PlanKey]*Plan, len(plans))
	for i := range plans {
		all[PlanKey{plans[i].Name, plans[i].Version}] = &plans[i]
	}
	return all
}
