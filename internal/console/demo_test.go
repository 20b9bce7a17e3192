package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/freeport"
)

// startDemo builds the program and starts `duly dev --demo`, as README.md says. It ends with the test.
func startDemo(t *testing.T) *url.URL {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "duly")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "duly.dev/duly/cmd/duly")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	demo := exec.Command(binary, "dev", "--demo", "--port", strconv.Itoa(freeport.Of(t)), "--nats-port", "0")
	out, err := demo.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	address, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if name, at, _ := strings.Cut(strings.TrimSpace(lines.Text()), " "); name == "http" {
				address <- strings.TrimSpace(at)
			}
		}
	}()
	t.Cleanup(func() {
		_ = demo.Process.Signal(os.Interrupt)
		<-ended
		_ = demo.Wait()
	})
	select {
	case text := <-address:
		at, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	case <-ended:
		t.Fatal("the demo ended before it printed its address")
	case <-time.After(time.Minute):
		t.Fatal("the demo printed no address")
	}
	return nil
}

// failedTask waits until an order of the demo is in error at a step, and returns its id and input.
func failedTask(t *testing.T, at *url.URL, step string) (id string, input map[string]any) {
	t.Helper()
	var page struct {
		Tasks []struct {
			ID string `json:"id"`
		} `json:"tasks"`
	}
	read := func(path string, to any) {
		answer, err := http.Get(at.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if err := json.NewDecoder(answer.Body).Decode(to); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", path, answer.Status, err)
		}
	}
	for end := time.Now().Add(2 * time.Minute); len(page.Tasks) == 0; {
		if time.Now().After(end) {
			t.Fatalf("no order of the demo failed in step %s", step)
		}
		read("/v1/tasks?type=order&state=error&step="+step, &page)
		<-time.After(100 * time.Millisecond)
	}
	var task struct {
		Input map[string]any `json:"input"`
	}
	read("/v1/tasks/order/"+page.Tasks[0].ID, &task)
	return page.Tasks[0].ID, task.Input
}

// TestJobsOnTheDemo: a new user does the five main jobs on `duly dev --demo`, with the keyboard alone.
//
// covers: OP7, OP10, OP11, OP15, OP16
func TestJobsOnTheDemo(t *testing.T) {
	at := startDemo(t)
	b := newBrowser(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // the browser's name for it is console.test
		r.SetURL(at)
		r.Out.Header.Del("Origin")
	}})
	id, input := failedTask(t, at, "courier")

	// Why did it fail?
	b.open("")
	b.tab(`e.id === "find"`)
	b.keys(id)
	b.enter(`document.title.indexOf("` + id + `") >= 0 && document.querySelector(".why-sentence").textContent.indexOf("is not known") >= 0`)

	// Fix and resubmit it: the page says by itself when it is done.
	input["address"] = "Main street 1"
	fixed, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	b.tab(`e.textContent === "Edit and resubmit"`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-input"`)
	b.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.keys(string(fixed))
	b.tab(`e.id === "d-reason"`)
	b.keys("the customer told the street")
	b.tab(`e.value === "compare"`)
	b.enter(`document.querySelector("#dialog .diff") && document.activeElement.value === "send"`)
	b.enter(noDialog + `document.querySelector(".why-sentence").textContent.indexOf("It was processed") >= 0`)

	// Undo all that failed alike as one operation.
	failedTask(t, at, "charge")
	b.tab(`e.textContent.trim() === "Failures"`)
	b.enter(`document.title.indexOf("Failures") === 0`)
	b.tab(`e.tagName === "A" && e.closest("tr") && e.closest("tr").textContent.indexOf("payment gateway answered") >= 0`)
	b.enter(`document.querySelector(".actions")`)
	b.tab(`e.textContent === "Undo"`)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-reason"`)
	b.keys("the gateway lost them")
	b.tab(`e.textContent === "Preview"`)
	b.keys(kb.Enter)
	b.until(`document.getElementById("d-brake")`)
	b.tab(`e.textContent === "Start"`)
	b.enter(noDialog + `location.pathname.indexOf("/operations/") >= 0`)
	b.until(`document.querySelector("main").textContent.indexOf("done") >= 0 && !document.querySelector(".state-running")`)

	// Who did that?
	b.tab(`e.textContent.trim() === "Audit"`)
	b.enter(`document.title.indexOf("Audit") === 0`)
	for _, part := range []string{"operation.start", "the gateway lost them", id} { // a page that is still loading has its title before its rows
		b.until(fmt.Sprintf(`document.querySelector("tbody").textContent.indexOf(%q) >= 0`, part))
	}

	// Whose deadline comes next?
	b.tab(`e.textContent.trim().indexOf("Overview") === 0`)
	b.enter(`document.title.indexOf("Overview") === 0`)
	const near = `e.tagName === "A" && e.textContent.indexOf("of the deadline") > 0`
	b.until(`Array.from(document.querySelectorAll("a")).some(function (e) { return ` + near + `; })`)
	b.tab(near)
	// Where the machine is busy, orders in flight may come first.
	b.enter(`document.title.indexOf("Whose deadline") === 0 && Array.from(document.querySelectorAll("tbody th a")).some(function (e) { return e.textContent.indexOf("statement/") === 0; })`)

	// Which answer is waited for?
	b.tab(`e.textContent.trim().indexOf("Overview") === 0`)
	b.enter(`document.title.indexOf("Overview") === 0`)
	const waiting = `e.tagName === "A" && e.textContent.indexOf("waiting for an answer") > 0`
	b.until(`Array.from(document.querySelectorAll("a")).some(function (e) { return ` + waiting + `; })`)
	b.tab(waiting)
	b.enter(`document.title.indexOf("Tasks") === 0 && document.querySelector(".words").textContent.indexOf("that wait for an answer") > 0`)
	b.tab(`e.tagName === "A" && e.closest("th") && e.textContent.indexOf("return/") === 0`)
	b.enter(`document.querySelector("h1").textContent.indexOf("return/") === 0 && document.querySelector("#conditions")`)
	b.clean("the jobs on the demo")
}
