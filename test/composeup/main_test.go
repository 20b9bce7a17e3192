package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// api is a Duly that says what it is told to.
func api(t *testing.T, all ...task) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Two pages, so that the second is read too.
		page := struct {
			Tasks []task `json:"tasks"`
			Next  string `json:"next,omitempty"`
		}{Tasks: all[:len(all)/2], Next: "a b"}
		if r.URL.Query().Get("after") == page.Next {
			page.Tasks, page.Next = all[len(all)/2:], ""
		}
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func told(id, state, status string) task {
	t := task{ID: id, State: state}
	for _, name := range stepNames {
		t.Steps = append(t.Steps, struct{ Name, Status string }{name, status})
	}
	return t
}

// TestBooks: what is right is closed, and each way of being wrong is told.
func TestBooks(t *testing.T) {
	var good, bad string // ids of which the second is refused by its last step
	for i := 0; good == "" || bad == ""; i++ {
		if id := fmt.Sprintf("t-%d", i); refuses(id) {
			bad = id
		} else {
			good = id
		}
	}
	for _, c := range []struct {
		name   string
		change func(*books, []task)
		want   string
	}{
		{"right", func(*books, []task) {}, ""},
		{"lost", func(b *books, _ []task) { b.accepted["other"] = true }, "is lost"},
		{"not ended", func(_ *books, all []task) { all[0].State = "processing" }, "is processing"},
		{"ended for a person", func(_ *books, all []task) { all[0].State = "error" }, "is error"},
		{"from nowhere", func(b *books, _ []task) { delete(b.accepted, good) }, "not accepted"},
		{"doubled", func(b *books, _ []task) { b.made[good+"/pay/0"] = 2 }, "2 times"},
		{"half done", func(b *books, _ []task) { b.standing[good+"/pack/0"] = false }, "stands: false"},
		{"half undone", func(b *books, _ []task) { b.standing[bad+"/pay/0"] = true }, "stands: true"},
		{"done though refused", func(_ *books, all []task) { all[1] = told(bad, "processed", "done") }, "is processed"},
		{"another word of a step", func(_ *books, all []task) { all[0].Steps[2].Status = "running" }, "is running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBooks()
			for _, name := range stepNames {
				if _, err := b.do(good + "/" + name + "/0"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.do(bad + "/pay/0"); err != nil {
				t.Fatal(err)
			}
			b.undo(bad + "/pay/0")
			if _, err := b.do(bad + "/pay/0"); err == nil {
				t.Error("what was taken back is done again")
			}
			b.accepted[good], b.accepted[bad] = true, true
			all := []task{told(good, "processed", "done"), told(bad, "undone", "undone")}
			c.change(b, all)
			err := b.close(t.Context(), api(t, all...))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestReadmeLines: every curl line of the README can be read here.
func TestReadmeLines(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all, read := curlAll.FindAllString(string(text), -1), curlLine.FindAllStringSubmatch(string(text), -1)
	if len(read) < 2 || len(read) != len(all) {
		t.Errorf("%d of %d lines can be read: %q", len(read), len(all), read)
	}
}

// TestLibraries reads what ldd says.
func TestLibraries(t *testing.T) {
	const said = `	linux-vdso.so.1 (0x00007ffd)
	libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f00)
	libnone.so.1 => not found
	/lib64/ld-linux-x86-64.so.2 (0x00007f01)
`
	var got []string
	for _, match := range needs.FindAllStringSubmatch(said, -1) {
		got = append(got, match[1])
	}
	if want := "/lib/x86_64-linux-gnu/libz.so.1 /lib64/ld-linux-x86-64.so.2"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
