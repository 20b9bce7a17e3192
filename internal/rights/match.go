package rights

import (
	"slices"
	"strings"

	"duly.dev/duly/internal/natsbus"
)

// covers reports whether every subject of pattern is one of by.
func covers(by, pattern string) bool { return match(by, pattern, false) }

// overlap reports whether the patterns have a subject in common.
func overlap(a, b string) bool { return match(a, b, true) }

func match(a, b string, touch bool) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case x[i] == ">":
			return true
		case y[i] == ">":
			return touch
		case x[i] == "*" || x[i] == y[i]:
		case y[i] == "*" && touch:
		default:
			return false
		}
	}
}

// Missing are the needed rights of a set that a user certainly does not have. One that it
// has in part is not among them: its rights may name the subjects that there are.
func (s Set) Missing(has natsbus.Permissions) []Right {
	var all []Right
	for _, r := range s.Rights {
		if r.Needed && !r.had(has) {
			all = append(all, r)
		}
	}
	return all
}

// had is false where nothing of the right is allowed, or all of it denied.
func (r Right) had(has natsbus.Permissions) bool {
	return r.allowed(has, overlap)
}

// Allowed reports whether all of the right is allowed, as far as one entry says so.
func (r Right) Allowed(has natsbus.Permissions) bool {
	return r.allowed(has, covers)
}

func (r Right) allowed(has natsbus.Permissions, by func(entry, subject string) bool) bool {
	lists := has.Subscribe
	if r.Publish {
		lists = has.Publish
	}
	matches := func(list []string, by func(entry, subject string) bool) bool {
		return slices.ContainsFunc(list, func(entry string) bool {
			subject, queue, _ := strings.Cut(entry, " ")
			return by(subject, r.Subject) && (queue == "" || queue == r.Queue)
		})
	}
	return (len(lists.Allow) == 0 || matches(lists.Allow, by)) && !matches(lists.Deny, covers)
}

// Find is the right of a set that a denied subject belongs to; nil: none.
func (s Set) Find(d natsbus.Denial) *Right {
	for i := range s.Rights {
		if r := &s.Rights[i]; r.Publish != d.Subscribe && covers(r.Subject, d.Subject) {
			return r
		}
	}
	return nil
}

// Wider lists what is allowed and belongs to no right of the set: patterns as the server has them, and > where there is
// no list, which allows everything. Subjects that begin as one of statusTo are where statuses may be wanted.
func (s Set) Wider(has natsbus.Permissions, statusTo []string) (publish, subscribe []string) {
	return s.wider(has.Publish, true, statusTo), s.wider(has.Subscribe, false, nil)
}

func (s Set) wider(lists natsbus.PermissionLists, publish bool, prefixes []string) []string {
	if len(lists.Allow) == 0 {
		if slices.Contains(lists.Deny, ">") {
			return nil
		}
		return []string{">"}
	}
	var all []string
	for _, entry := range lists.Allow {
		subject, _, _ := strings.Cut(entry, " ")
		needed := slices.ContainsFunc(s.Rights, func(r Right) bool { return r.Publish == publish && covers(r.Subject, subject) }) ||
			slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(subject, p) }) ||
			slices.ContainsFunc(lists.Deny, func(deny string) bool { return covers(deny, subject) })
		if !needed {
			all = append(all, entry)
		}
	}
	slices.Sort(all) // a server lists them in any order
	return all
}
