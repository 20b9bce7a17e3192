package planfile

import (
	"strings"
	"testing"
)

// TestParse: a file of another kind is read with places, and what may be a secret is not shown.
func TestParse(t *testing.T) {
	tree, root := Parse("f.yaml", "fruit", []byte("apples: 3\npears: [a, \"b\\tc\"]\nplums: {x: s3cr3t, y: 1}\nnone:\n"))
	if root == nil {
		t.Fatal(tree.Err())
	}
	members, ok := root.Members()
	if !ok || len(members) != 4 || root.Kind() != "a mapping" {
		t.Fatalf("%v %v", members, ok)
	}
	if text, ok := members[0].Value.Scalar(); text != "3" || !ok {
		t.Errorf("%q %v", text, ok)
	}
	if _, ok := members[0].Value.Text(); ok {
		t.Error("a number is text")
	}
	if _, ok := members[3].Value.Scalar(); ok {
		t.Error("nothing is a scalar")
	}
	items, ok := members[1].Value.Items()
	if !ok || len(items) != 2 {
		t.Fatalf("%v %v", items, ok)
	}
	if tree.Err() != nil {
		t.Error("nothing is wrong, and an error is told")
	}
	tree.WrongIn(items[1], 1, 3, "not %s", "c")
	tree.Unknown(members[0], "a basket", []string{"apple", "pears"})
	tree.Wrong(members[2].Value, "first")
	tree.Blind(true)
	tree.WrongName(members[2], "second")
	tree.Blind(false)
	want := `f.yaml:1:1: a basket has no "apples": is apple meant?
 | apples: 3
 | ^
f.yaml:2:16: not c
 | pears: [a, "b\tc"]
 |                ^
f.yaml:3:1: second
f.yaml:3:9: first`
	err := tree.Err()
	if all, is := err.(TreeErrors); !is || len(all) != 4 || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	tree, root = Parse("f.yaml", "fruit", nil)
	if root != nil || tree.Err() == nil || !strings.Contains(tree.Err().Error(), "the file is empty, want fruit") {
		t.Errorf("%v", tree.Err())
	}
}
