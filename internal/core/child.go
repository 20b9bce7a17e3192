package core

import "fmt"

// Children of tasks. They live in their parent's partition, so that a birth, an end and what they mean for the parent
// are in one commit.

const (
	// ChildMark is between the parts of a child's id; no id that a client may give has it.
	ChildMark = '~'
	// ChildDepthMax is how deep children may have children.
	ChildDepthMax = 8
	// ChildIDBytesMax bounds the id of a child.
	ChildIDBytesMax = 255
)

// ChildID is the id of the child of a step in a round of its parent: <parent>~<step>, of an element
// <parent>~<step>~<index>, and after a resubmit from the start with ~r<round>.
func ChildID(parent, step string, index, round int, each bool) string {
	id := parent + string(ChildMark) + step
	if each {
		id += string(ChildMark) + fmt.Sprint(index)
	}
	if round > 0 {
		id += string(ChildMark) + "r" + fmt.Sprint(round)
	}
	return id
}

// RootID is the id of the task at the root of the tree that an id is in: its partition is that of the tree.
func RootID(id string) string {
	for i := range len(id) {
		if id[i] == ChildMark {
			return id[:i]
		}
	}
	return id
}

// CheckTaskID accepts the id of any task: one that a client gave, which CheckName accepts, or a child's.
func CheckTaskID(id string) error {
	if len(id) > ChildIDBytesMax {
		return &NameError{"id", fmt.Sprintf("%s has %d bytes, want at most %d", QuoteShort(id), len(id), ChildIDBytesMax)}
	}
	from := 0
	for i := 0; i <= len(id); i++ {
		if i < len(id) && id[i] != ChildMark {
			continue
		}
		if err := CheckName("id", id[from:i]); err != nil {
			return err
		}
		from = i + 1
	}
	return nil
}
