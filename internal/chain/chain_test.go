package chain_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"duly.dev/duly/internal/chain"
	"duly.dev/duly/internal/core"
)

// A small table of its own: what rows of tasks and of the journal have is in package schema.
var table = chain.NewTable('X', []chain.Column{
	{Name: "name", Form: chain.Text}, {Name: "number", Form: chain.Number}, {Name: "partition", Form: chain.Number}, {Name: "step", Form: chain.Number, None: -1},
	{Name: "result", Form: chain.Bytes}, {Name: "input", Form: chain.Bytes}, {Name: "later", Form: chain.Number, Since: 1}, {Name: "last", Form: chain.Text, Since: 2},
})

// TestDigestCoversEveryValue: whichever value of a row is another, its digest is, and no value
// can be moved into its neighbour.
func TestDigestCoversEveryValue(t *testing.T) {
	var h chain.Hasher
	values := func(change func([]chain.Value)) chain.Digest {
		row := chain.Row{Table: table, Values: make([]chain.Value, 8)}
		row.Values[3].Int = -1
		change(row.Values)
		return h.Row(&row)
	}
	seen := map[chain.Digest]string{values(func([]chain.Value) {}): "none"}
	for name, change := range map[string]func([]chain.Value){
		"name": func(v []chain.Value) { v[0].Text = "x" }, "number": func(v []chain.Value) { v[1].Int = 77 }, "partition": func(v []chain.Value) { v[2].Int = 77 },
		"step": func(v []chain.Value) { v[3].Int = 76 }, "step 0": func(v []chain.Value) { v[3].Int = 0 }, "result": func(v []chain.Value) { v[4].Bytes = []byte("x") },
		"input": func(v []chain.Value) { v[5].Text = "x" }, "later": func(v []chain.Value) { v[6].Int = 77 }, "last": func(v []chain.Value) { v[7].Text = "x" },
	} {
		d := values(change)
		if was, ok := seen[d]; ok {
			t.Errorf("another %s has the digest of another %s", name, was)
		}
		seen[d] = name
	}
}

// TestAdditionsLeaveDigests: a row without a value of what was added to its table has the digest that it had before.
func TestAdditionsLeaveDigests(t *testing.T) {
	var h chain.Hasher
	of := func(columns []chain.Column, values ...chain.Value) chain.Digest {
		return h.Row(&chain.Row{Table: chain.NewTable('X', columns), Values: values})
	}
	first := []chain.Column{{Name: "a"}, {Name: "b", Form: chain.Text}}
	second := append(slices.Clip(first), chain.Column{Name: "c", None: -1, Since: 1}, chain.Column{Name: "d", Since: 1})
	third := append(slices.Clip(second), chain.Column{Name: "e", Form: chain.Text, Since: 2})
	one, two, none := chain.Value{Int: 1}, chain.Value{Text: "two"}, chain.Value{Int: -1}
	if of(first, one, two) != of(third, one, two, none, chain.Value{}, chain.Value{}) {
		t.Error("a row of the beginning has another digest after two additions")
	}
	if of(second, one, two, none, one) != of(third, one, two, none, one, chain.Value{}) {
		t.Error("a row of the first addition has another digest after the second")
	}
	if of(third, one, two, none, chain.Value{}, two) == of(third, one, two, chain.Value{Int: 3}, chain.Value{}, two) {
		t.Error("the digest of a row of the second addition does not cover the first")
	}
}

// FuzzRow: a row of an export that can be read is written as what reads as the same.
func FuzzRow(f *testing.F) {
	f.Add(`{"name":"n","number":1,"result":"AP8="}`)
	f.Fuzz(func(t *testing.T, text string) {
		row, err := chain.RowOf(table, []byte(text))
		if err != nil {
			return
		}
		written, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		again, err := chain.RowOf(table, written)
		var h chain.Hasher
		if err != nil || h.Row(again) != h.Row(row) {
			t.Errorf("%s of %s reads as another row: %v", written, text, err)
		}
	})
}

// A row of an export is of the table: what is in no column is refused.
func TestRowOfAnotherTable(t *testing.T) {
	for text, want := range map[string]string{`{"colour":"red"}`: `"colour"`, `{"number":"one"}`: "column number", `[]`: "array"} {
		if _, err := chain.RowOf(table, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	row, err := chain.RowOf(table, []byte(`{"name":"n","step":0,"later":3}`))
	if err != nil || row.Int("step") != 0 || row.Int("later") != 3 || row.Text("name") != "n" || row.Int("nothing") != 0 {
		t.Errorf("%+v, %v", row, err)
	}
}

// A link's hash covers all of it.
func TestHashCoversTheLink(t *testing.T) {
	is := chain.Link{Partition: 1, Height: 2, Epoch: 3, Commit: 4, At: 5, Kind: chain.KindCommit, Content: []byte("c")}
	seen := map[chain.Hash]bool{is.HashAfter(chain.Hash{}): true, is.HashAfter(chain.Hash{1}): true}
	for _, change := range []func(*chain.Link){
		func(l *chain.Link) { l.Partition++ }, func(l *chain.Link) { l.Height++ }, func(l *chain.Link) { l.Epoch++ }, func(l *chain.Link) { l.Commit++ },
		func(l *chain.Link) { l.At++ }, func(l *chain.Link) { l.Kind++ }, func(l *chain.Link) { l.Content = []byte("d") },
		func(l *chain.Link) { l.Content = nil },
	} {
		l := is
		change(&l)
		seen[l.HashAfter(chain.Hash{})] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d different hashes, want 10", len(seen))
	}
}

func TestContentComesBack(t *testing.T) {
	want := chain.Content{
		Entries: []chain.Entry{{Number: 1, Seq: 2, Digest: chain.Digest{3}}, {Number: 1 << 40, Seq: 300, Task: true, Digest: chain.Digest{4}}, {Number: 9, Seq: 1, Task: true, EndedAt: 77}},
		Carried: []chain.Entry{{Number: 5, Seq: 6}, {Number: 7, Seq: 8, Task: true, EndedAt: 9}},
		Trim:    &chain.Trim{Height: 12, Hash: chain.Hash{1, 2}},
		Begins:  []chain.Begin{{NextNumber: 3, Since: 4, At: 5}, {NextNumber: 6}},
	}
	b := chain.AppendTrim(nil, want.Trim)
	for i := range want.Begins {
		b = chain.AppendBegin(b, &want.Begins[i])
	}
	for i := range want.Entries {
		b = chain.AppendEntry(b, &want.Entries[i], false)
	}
	for i := range want.Carried {
		b = chain.AppendEntry(b, &want.Carried[i], true)
	}
	got, err := chain.DecodeContent(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for n := range b {
		if c, err := chain.DecodeContent(b[:n]); err == nil && len(c.Entries)+len(c.Carried)+len(c.Begins) >= 7 {
			t.Errorf("the first %d of %d bytes have all of it", n, len(b))
		}
	}
}

func FuzzContent(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add(chain.AppendTrim(nil, &chain.Trim{Height: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := chain.DecodeContent(b)
		if n := len(c.Entries) + len(c.Carried); err == nil && n*(chain.DigestBytes+3) > len(b) {
			t.Errorf("%d entries in %d bytes", n, len(b))
		}
	})
}

func TestHeads(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := chain.Head{Installation: "i", Partition: 1, Height: 2, Epoch: 3, Commit: 4, At: 5, Hash: chain.Hash{6}}
	if err := h.Check(public); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("an unsigned head: %v", err)
	}
	h.Sign(private)
	if err := h.Check(public); err != nil {
		t.Error(err)
	}
	if err := h.Check(other); err == nil {
		t.Error("the signature is of another key too")
	}
	for _, change := range []func(*chain.Head){
		func(h *chain.Head) { h.Installation = "j" }, func(h *chain.Head) { h.Partition++ }, func(h *chain.Head) { h.Height++ }, func(h *chain.Head) { h.Epoch++ },
		func(h *chain.Head) { h.Commit++ }, func(h *chain.Head) { h.At++ }, func(h *chain.Head) { h.Hash[0]++ },
	} {
		forged := h
		change(&forged)
		if err := forged.Check(public); err == nil {
			t.Errorf("the signature fits %+v too", forged)
		}
	}
	var file strings.Builder
	if err := chain.WriteHeads(&file, []chain.Head{h, h}); err != nil {
		t.Fatal(err)
	}
	read, err := chain.ReadHeads(strings.NewReader(file.String() + "\n"))
	if err != nil || !reflect.DeepEqual(read, []chain.Head{h, h}) {
		t.Errorf("read %+v, %v", read, err)
	}
	for _, bad := range []string{"{", `{"partition":1}`, `{"height":1,"hash":"00"}`} {
		if _, err := chain.ReadHeads(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("heads %s: %v", bad, err)
		}
	}
}

// full is a file on a disk that becomes full.
type full struct {
	*os.File
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if f.room >= len(p) {
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:f.room])
	return n, syscall.ENOSPC
}

// TestAppendHeads: a file of heads can be read after its disk was full, with the heads that it had.
func TestAppendHeads(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "heads"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, second := []chain.Head{{Height: 1, At: 5}}, []chain.Head{{Height: 2}, {Height: 3}}
	disk := &full{f, 1 << 20}
	if err := chain.AppendHeads(disk, first); err != nil {
		t.Fatal(err)
	}
	disk.room = 100
	if err := chain.AppendHeads(disk, second); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	read := func() []chain.Head {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		all, err := chain.ReadHeads(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%v in\n%s", err, data)
		}
		return all
	}
	if got := read(); !reflect.DeepEqual(got, first) {
		t.Errorf("read %+v, want %+v", got, first)
	}
	disk.room = 1 << 20
	if err := chain.AppendHeads(disk, second); err != nil {
		t.Fatal(err)
	}
	if got := read(); len(got) != 3 {
		t.Errorf("read %+v", got)
	}
}

func TestKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if der, err = x509.MarshalPKIXPublicKey(public); err != nil {
		t.Fatal(err)
	}
	open := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if key, err := chain.ReadKey(secret); err != nil || !key.Equal(private) {
		t.Errorf("private key: %v", err)
	}
	for _, text := range [][]byte{secret, open} {
		if key, err := chain.ReadPublicKey(text); err != nil || !key.Equal(public) {
			t.Errorf("public key: %v", err)
		}
	}
	for _, bad := range []string{"", string(open), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := chain.ReadKey([]byte(bad)); err == nil {
			t.Errorf("a private key was read of %q", bad)
		}
	}
	if _, err := chain.ReadPublicKey([]byte("no key")); err == nil {
		t.Error("a public key was read of no key")
	}
}

func TestForeignFile(t *testing.T) {
	for text, want := range map[string]string{
		"":     "cut off",
		"{}\n": "no export of a journal",
		`{"form":"duly journal","version":9}` + "\n":                                                 "version 9",
		`{"form":"duly journal","version":1}` + "\n":                                                 "cut off",
		`{"form":"duly journal","version":1}` + "\n" + `{"end":true}` + "\n" + `{"end":true}` + "\n": "after the end",
		"nothing\n": "line 1",
	} {
		if _, err := chain.OpenFile(t.Context(), strings.NewReader(text), chain.Tables{Tasks: table, Journal: table}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a file of %q: %v, want %q", text, err, want)
		}
	}
}

func ExampleReport_Sentence() {
	r := chain.Report{Partitions: []chain.Checked{{Partition: 0, First: 1, Last: 9, Rows: 20, Tasks: 4}}}
	fmt.Println(r.Sentence())
	r.Findings = []chain.Finding{{What: chain.Changed, Partition: 0, Text: `row 2 of task "order-17" is not as commit 12 wrote it`}}
	fmt.Println(r.Sentence())
	// Output:
	// fits: 24 rows of 1 partition, 0 purged by retention, 0 older than the chain; no head: what was cut off at the end, or replaced as a whole, would not be seen
	// does not fit: 1 finding; the first is in partition 0: row 2 of task "order-17" is not as commit 12 wrote it
}

// named is a table with what names its rows.
var named = chain.NewTable('X', []chain.Column{{Name: "number"}, {Name: "seq"}})

// many is a source of one partition in which no row is as its link says.
type many struct{ rows int64 }

func (many) Installation() string                                              { return "i" }
func (many) At() core.Instant                                                  { return 1 }
func (many) Partitions() []int                                                 { return []int{0} }
func (many) LeftOut() []int                                                    { return nil }
func (m many) View(context.Context, int) (chain.View, error)                   { return m, nil }
func (many) Tasks(context.Context, int64, int64, func(*chain.Row) error) error { return nil }
func (many) Close() error                                                      { return nil }

// Links name a row each, the last number first.
func (m many) Links(_ context.Context, _ int64, yield func(*chain.Link) error) error {
	var before chain.Hash
	for height := int64(1); height <= m.rows; height++ {
		l := chain.Link{Height: height, Commit: height, Kind: chain.KindCommit}
		l.Content = chain.AppendEntry(nil, &chain.Entry{Number: m.rows + 1 - height, Seq: 1}, false)
		l.Hash = l.HashAfter(before)
		before = l.Hash
		if err := yield(&l); err != nil {
			return err
		}
	}
	return nil
}

func (m many) Rows(_ context.Context, low, high int64, yield func(*chain.Row) error) error {
	for n := max(low, 1); n <= m.rows && n < high; n++ {
		if err := yield(&chain.Row{Table: named, Values: []chain.Value{{Int: n}, {Int: 1}}}); err != nil {
			return err
		}
	}
	return nil
}

// However much does not fit, the first of the chain is named, and the rest counted.
func TestManyFindings(t *testing.T) {
	const rows = 4567
	r, err := chain.Verify(t.Context(), many{rows}, chain.Options{Partition: -1, EntriesMax: 500})
	if err != nil {
		t.Fatal(err)
	}
	if first := r.Findings[0]; first.Height != 1 || first.Number != rows || first.What != chain.Changed {
		t.Errorf("first: %+v", first)
	}
	if len(r.Findings) != 1000 || len(r.Findings)+r.More != rows || r.Findings[999].Height != 1000 {
		t.Errorf("%d findings and %d more, want %d in all; the last listed is %+v", len(r.Findings), r.More, rows, r.Findings[len(r.Findings)-1])
	}
}
