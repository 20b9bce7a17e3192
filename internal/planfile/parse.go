package planfile

import (
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/near"
)

// Tree is a file of another kind than a plan, read with the same care: YAML or JSON, no name twice, no anchors. What is
// wrong with it is told with its place.
type Tree struct{ f *file }

// Parse reads a file, whose name stands in errors; want says in them what it should hold, as in "a plan". A nil root: it
// is none, and Err says why.
func Parse(name, want string, data []byte) (t *Tree, root *Value) {
	t = &Tree{&file{name: name, want: want}}
	n := t.f.parse(data)
	if n == nil {
		return t, nil
	}
	return t, &Value{n}
}

// Value is a value in a Tree.
type Value struct{ n *node }

// Member is a member of a mapping.
type Member struct {
	Name  string
	Value *Value
	at    pos
}

// Kind is "nothing", "true or false", "a number", "text", "a list" or "a mapping".
func (v *Value) Kind() string { return kindNames[v.n.kind] }

// Scalar is the text of text, a number, true or false; ok is false for all else.
func (v *Value) Scalar() (text string, ok bool) {
	return v.n.text, v.n.kind != nothing && v.n.kind != list && v.n.kind != mapping
}

// Text is the value where it is text.
func (v *Value) Text() (text string, ok bool) { return v.n.text, v.n.kind == textKind }

// Items are those of a list; ok is false where it is none.
func (v *Value) Items() (items []*Value, ok bool) {
	for _, n := range v.n.items {
		items = append(items, &Value{n})
	}
	return items, v.n.kind == list
}

// Members are those of a mapping, in the order of the file; ok is false where it is none.
func (v *Value) Members() (members []Member, ok bool) {
	for _, m := range v.n.members {
		members = append(members, Member{m.name, &Value{m.value}, m.at})
	}
	return members, v.n.kind == mapping
}

// Wrong notes what is wrong with a value.
func (t *Tree) Wrong(v *Value, format string, args ...any) { t.f.wrong(v.n.at, format, args...) }

// WrongIn notes what is wrong at a line and column of a text, both from 1.
func (t *Tree) WrongIn(v *Value, line, column int, format string, args ...any) {
	t.f.wrong(t.f.in(v.n, line, column), format, args...)
}

// WrongName notes what is wrong with the name of a member.
func (t *Tree) WrongName(m Member, format string, args ...any) { t.f.wrong(m.at, format, args...) }

// Unknown notes that what, as in "a step", has no such member, with the one that was meant.
func (t *Tree) Unknown(m Member, what string, known []string) {
	if !slices.Contains(known, m.Name) {
		t.f.wrong(m.at, "%s has no %q%s", what, core.ShortText(m.Name, 64), near.Ask(m.Name, known))
	}
}

// Blind says whether the lines of mistakes that are noted from now on are left out of the error, whatever else is wrong
// with them: they may have a secret that should not stand there.
func (t *Tree) Blind(yes bool) { t.f.blind = yes }

// Err is all that is wrong, a TreeErrors, or nil.
func (t *Tree) Err() error {
	if err := t.f.err(); err != nil {
		return TreeErrors(t.f.errors)
	}
	return nil
}

// TreeErrors is all that is wrong with a file that is no plan, in the order of its lines.
type TreeErrors []*Error

// Error has one after the other.
func (e TreeErrors) Error() string { return errorList(e).Error() }

// textKind is the kind text, whose name methods here have for their own.
const textKind = text
