package console

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"duly.dev/duly/internal/operate"
)

//go:embed testdata/axe.min.js
var axe string

//go:embed testdata/checks.js
var checks string

// everything says that each page is checked whole in each theme and width, though most of that can show nothing new.
func everything() bool { return os.Getenv("DULY_TESTS") == "all" }

// chromiumPath finds Debian's chromium, or what stands in for it. A machine without one fails the test: see scripts/deps.
func chromiumPath() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium on PATH: run scripts/deps")
}

// chromium is the browser of all tests, which share its processes and none of what it stores.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
	end  func()
}

// startChromium starts the browser with the first test that needs it.
func startChromium() {
	path, err := chromiumPath()
	if err != nil {
		chromium.err = err
		return
	}
	// As an operator's browser sees it: a name, plain HTTP, and so no clipboard for scripts.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(2*time.Minute), chromedp.Flag("host-resolver-rules", "MAP console.test 127.0.0.1"))
	allocated, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocated)
	chromium.ctx, chromium.end = ctx, func() {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		if err := chromedp.Cancel(bounded); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "end of the browser:", err)
		}
		cancel()
		end()
		endAllocator()
	}
	// The first action starts the browser, which lives as long as its context: no limit here.
	chromium.err = chromedp.Do(ctx, chromedp.Navigate("about:blank"))
}

// runThenEnd runs the tests, then ends what they shared.
type runThenEnd struct{ *testing.M }

func (m runThenEnd) Run() int {
	code := m.M.Run()
	if chromium.end != nil {
		chromium.end()
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(runThenEnd{m}) }

// browser is a tab of a test, with storage of its own.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string
	end  func() // of the server: nothing answers any more

	mu       sync.Mutex
	problems []string // errors of the console, violations of the policy, uncaught exceptions
}

// expected are lines of the browser's console that a test provokes.
var expected = regexp.MustCompile(`status of (4\d\d|503)|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_NETWORK_CHANGED|Cross-Origin-Opener-Policy header has been ignored`)

// newBrowser serves a handler and opens a tab on it. It ends with the test.
func newBrowser(t *testing.T, h http.Handler) *browser {
	t.Helper()
	chromium.once.Do(startChromium)
	if chromium.err != nil {
		t.Fatalf("browser: %v", chromium.err)
	}
	server := httptest.NewServer(h)
	stop := sync.OnceFunc(func() { server.CloseClientConnections(); server.Close() })
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &browser{t: t, base: strings.Replace(server.URL, "127.0.0.1", "console.test", 1), ctx: ctx, end: stop}
	// The first action opens the tab, which lives as long as its context: no limit here.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("browser: %v", err)
	}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1280, 900, 1)
	return b
}

// hear keeps what the browser complains about.
func (b *browser) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.problems = append(b.problems, "exception: "+text)
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == "error" && !expected.MatchString(e.Entry.Text) {
			b.problems = append(b.problems, e.Entry.Text)
		}
	case *cdppage.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "a script opened a dialog: "+e.Message)
	}
}

// do runs actions, and fails the test if one does.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("browser: %v", err)
	}
}

// call sends one command of the protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	}))
}

// eval answers what an expression comes to.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("browser: %.200s: %v", expression, err)
	}
	return v
}

// open goes to an address of the console and waits until the script ran.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+Path+path), chromedp.WaitReady("main"))
	b.until(`document.readyState === "complete"`)
}

// seen is what a person would look at where something does not come.
const seen = `JSON.stringify({title: document.title, at: location.href, focus: document.activeElement.outerHTML.slice(0, 200),
	input: (document.getElementById("d-input") || {}).value, dialog: document.getElementById("dialog").innerText.slice(0, 600), main: document.querySelector("main").innerText.slice(0, 600)})`

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	for {
		v, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && v {
			return
		}
		select {
		case <-ctx.Done():
			b.t.Fatalf("waiting for %s: %v; there is %s", expression, err, eval[string](b, seen))
		case <-time.After(40 * time.Millisecond):
		}
	}
}

// size sets the window, and how many pixels of the screen one has.
func (b *browser) size(width, height int64, scale float64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: scale})
}

// theme sets the colours of the system.
func (b *browser) theme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// clean fails the test if the browser complained since the last call.
func (b *browser) clean(where string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("%s: %s", where, p)
	}
	b.problems = nil
}

// screens is where pictures of the pages go.
func screens(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "bin", "screens")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

var unsafeName = regexp.MustCompile(`[^a-z0-9]+`)

// shoot keeps a picture of the whole page.
func (b *browser) shoot(name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	name = strings.Trim(unsafeName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if err := os.WriteFile(filepath.Join(screens(b.t), name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// whole makes the window as high as the page.
func (b *browser) whole(width int64) {
	b.t.Helper()
	b.size(width, 900, 1)
	height := eval[int64](b, `Math.max(document.documentElement.scrollHeight, 400)`)
	b.size(width, min(height, 6000), 1)
}

// inject gives the page axe-core and the checks, once.
func (b *browser) inject() {
	b.t.Helper()
	if !eval[bool](b, `"checks" in window`) {
		eval[chromedp.Void](b, axe+"\n;"+checks)
	}
}

// accessible fails the test for each violation that axe-core finds.
func (b *browser) accessible(where string) {
	b.t.Helper()
	b.inject()
	b.violates(where, "checks.all()")
}

// violates fails the test for each violation that a check finds.
func (b *browser) violates(where, check string) {
	b.t.Helper()
	for _, v := range eval[[]string](b, check) {
		b.t.Errorf("%s: %s", where, v)
	}
}

// looksSeen are the ways to come by colours whose colours were checked, by any test.
var looksSeen = map[string]bool{}

// newLooks answers those of the page that were not, as JavaScript.
func (b *browser) newLooks() string {
	b.t.Helper()
	looks := slices.DeleteFunc(eval[[]string](b, "checks.looks()"), func(look string) bool { return looksSeen[look] })
	for _, look := range looks {
		looksSeen[look] = true
	}
	text, err := json.Marshal(looks)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// fits fails the test if the page is wider than the window.
func (b *browser) fits(where string) {
	b.t.Helper()
	wide := eval[string](b, `(function () {
		var w = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= w) return "";
		return document.documentElement.scrollWidth + " > " + w + ": " + Array.from(document.querySelectorAll("body *")).filter(function (e) { return e.getBoundingClientRect().right > w + 1 && !e.closest(".scroll, .pan, pre, .sr, textarea"); }).slice(0, 4).map(function (e) { return e.tagName + "." + e.getAttribute("class") + " " + (e.textContent || "").slice(0, 40); }).join(" | ");
	})()`)
	if wide != "" {
		b.t.Errorf("%s is wider than its window: %s", where, wide)
	}
}

// looksRight opens a page and fails the test if it does not fit at 1280 or 320 pixels, at 200 % or from right to left, is
// not accessible, or the browser complains. What is alike may be gone from the page after. With DULY_SCREENS set, pictures are kept under bin/screens.
func (b *browser) looksRight(name, path string) {
	b.t.Helper()
	b.theme("light")
	b.size(1280, 900, 1)
	b.open(path)
	b.fits(name + " at 1280 pixels")
	if os.Getenv("DULY_SCREENS") != "" {
		b.pictures(name)
	}
	b.size(640, 450, 2) // a window of 1280 by 900 at 200 %
	b.fits(name + " at 200 %")
	eval[chromedp.Void](b, `document.documentElement.dir = "rtl"`)
	b.fits(name + " from right to left")
	eval[chromedp.Void](b, `document.documentElement.removeAttribute("dir")`)
	b.size(320, 700, 1)
	b.fits(name + " at 320 pixels")
	if everything() {
		b.accessibleInAll(name)
	} else {
		b.accessibleInEach(name)
	}
	b.clean(name)
}

// accessibleInAll runs every rule on the whole page in each theme and width.
func (b *browser) accessibleInAll(name string) {
	b.t.Helper()
	b.accessible(name + " at 320 pixels")
	b.size(1280, 900, 1)
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.accessible(name + " in " + theme)
	}
}

// accessibleInEach runs a rule where it can find what it has not found before: those about structure once a page, those
// about layout in both widths, and those about colours in both themes and widths for each look that is new. Of rows that
// are alike it sees two.
func (b *browser) accessibleInEach(name string) {
	b.t.Helper()
	b.inject()
	eval[chromedp.Void](b, "checks.thin()")
	colours := "checks.colours(" + b.newLooks() + ")"
	b.violates(name+" at 320 pixels", "checks.layout()")
	b.violates(name+" at 320 pixels", colours)
	b.size(1280, 900, 1)
	b.violates(name, "checks.structure()")
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.violates(name+" in "+theme, colours)
	}
}

// pictures keeps the page as it is in both themes and widths.
func (b *browser) pictures(name string) {
	b.t.Helper()
	b.whole(320)
	b.shoot(name + " 320")
	b.whole(1280)
	for _, theme := range []string{"dark", "light"} {
		b.theme(theme)
		b.shoot(name + " " + theme)
	}
}

// TestPagesInABrowser: each page and dialog, in light and dark, at 1280 and 320 pixels and at 200 %, has no violation of
// axe-core, no error and no breach of the policy, and fits.
//
// covers: OP14, OP15, OP20
func TestPagesInABrowser(t *testing.T) {
	w := newWorld(time.Now)
	w.trips()
	b := newBrowser(t, as(operate.RoleAdmin, newConsole(t, w.config())))
	for _, path := range slices.Concat(everyPage, everyDialog) {
		b.looksRight(cmp.Or(path, "overview"), path)
	}
}

// TestAgesAreByTheServersClock: a browser whose clock is wrong shows the ages that the server says.
//
// covers: O9
func TestAgesAreByTheServersClock(t *testing.T) {
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, fixedWorld().config()))) // whose noon is not that of this machine
	for _, path := range []string{"tasks", "tasks/order/order-1002", "pauses"} {
		b.open(path)
		said := eval[[]string](b, `fetch(location.href).then(function (r) { return r.text(); }).then(function (text) {
			return Array.from(new DOMParser().parseFromString(text, "text/html").querySelectorAll("time.t .rel")).map(function (n) { return n.textContent; }); })`)
		shown := eval[[]string](b, `Array.from(document.querySelectorAll("time.t .rel")).map(function (n) { return n.textContent; })`)
		if len(said) < 2 || len(said) != len(shown) {
			t.Fatalf("%s: the server says %q, the browser %q", path, said, shown)
		}
		number, counts := regexp.MustCompile(`\d+`), regexp.MustCompile(`^(in )?\d+ s( ago)?$|^now$`)
		for i := range said { // what is counted in seconds goes on, and may come to the next minute
			n, _ := strconv.Atoi(number.FindString(said[i]))
			m, _ := strconv.Atoi(number.FindString(shown[i]))
			near := number.ReplaceAllString(said[i], "") == number.ReplaceAllString(shown[i], "") && max(n-m, m-n) <= 1
			if !near && !(counts.MatchString(said[i]) && counts.MatchString(shown[i])) {
				t.Errorf("%s: the server says %q, the browser %q", path, said[i], shown[i])
			}
		}
	}
}

// firstPages are what is looked at first when something is wrong.
var firstPages = []string{"", "tasks", "tasks/order/order-1002", "tasks/order/order-1004", "failures", "agents", "pauses", "operations", "audit"}

// TestFirstScreens: at the widths of a laptop and a phone no word of the first screens is split, and on a laptop no column
// is out of sight; what was written from right to left, or turns the direction, moves nothing beside it.
//
// covers: O9
func TestFirstScreens(t *testing.T) {
	for name, w := range map[string]*world{"usual": newWorld(time.Now), "hard": hardWorld()} {
		w.risky = true
		b := newBrowser(t, as(operate.RoleAdmin, newConsole(t, w.config())))
		for _, path := range firstPages {
			for _, width := range []int64{1300, 390} {
				b.size(width, 900, 1)
				b.open(path)
				b.inject()
				where := fmt.Sprintf("%s %s at %d pixels", name, cmp.Or(path, "overview"), width)
				b.fits(where)
				b.violates(where, "checks.words()")
				b.violates(where, "checks.directions()")
				if width > 1000 {
					b.violates(where, "checks.columns()")
				}
				if os.Getenv("DULY_SCREENS") != "" {
					b.whole(width)
					for _, theme := range []string{"dark", "light"} {
						b.theme(theme)
						b.shoot(where + " " + theme)
					}
				}
			}
		}
		b.clean(name)
	}
}

// TestPlots: a plot has room for its labels, whatever they are, and where nothing was looked at its lines are broken, with
// and without the script; the table says that it does not know.
//
// covers: O9
func TestPlots(t *testing.T) {
	w := newWorld(time.Now)
	for i := range w.samples {
		w.samples[i].P99MS = 1_234_567
	}
	gap := len(w.samples) - 3
	w.samples[gap].Gap = true
	for i := range gap {
		w.samples[i].At = w.samples[i].At.Add(-4 * time.Minute)
	}
	ps := points(w.samples)
	for _, f := range figures(ps) {
		for _, l := range f.Lines {
			if n := strings.Count(string(sparkline(l.Values)), "<polyline"); n != 2 || l.Now == "–" {
				t.Errorf("%s, %s: %d lines, now %s; want two, with a gap between them", f.ID, l.Name, n, l.Now)
			}
		}
		if at := len(ps) - 1 - slices.IndexFunc(ps, func(p point) bool { return p.Gap }); f.Rows[at].Values[0] != "–" {
			t.Errorf("%s: the row of the gap says %s", f.ID, f.Rows[at].Values[0])
		}
	}
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, w.config())))
	for _, width := range []int64{1300, 390} {
		b.size(width, 900, 2)
		b.open("")
		b.until(`document.querySelectorAll(".uplot").length === 3`)
		const room = `(function () { var c = document.createElement("canvas").getContext("2d"); c.font = "11px system-ui, sans-serif"; return [document.querySelectorAll("[data-plot=latency] .u-axis")[1].getBoundingClientRect().width, c.measureText("1,000,000").width]; })()`
		if is := eval[[]float64](b, room); is[0] < is[1]+8 {
			t.Errorf("at %d pixels the labels have room for %v pixels and are %v wide", width, is[0], is[1])
		}
		if os.Getenv("DULY_SCREENS") != "" {
			b.whole(width)
			b.shoot(fmt.Sprintf("plots %d", width))
		}
	}
	b.clean("plots")
}

// TestPlotsTellTheirTimes: no two labels of a plot's time axis are the same, however short what it shows.
//
// covers: O9
func TestPlotsTellTheirTimes(t *testing.T) {
	w := newWorld(time.Now)
	w.samples = w.samples[len(w.samples)-20:]
	for i := range w.samples {
		w.samples[i].At = time.Now().Add(time.Duration(i-len(w.samples)) * 2 * time.Second)
	}
	b := newBrowser(t, as(operate.RoleViewer, newConsole(t, w.config())))
	b.size(1300, 900, 1)
	b.open("")
	b.until(`document.querySelectorAll(".uplot").length === 3`)
	eval[bool](b, `(function () {
		var draw = CanvasRenderingContext2D.prototype.fillText;
		window.said = new Map();
		CanvasRenderingContext2D.prototype.fillText = function (text) {
			if (/^\d\d:\d\d/.test(text)) said.set(this.canvas, (said.get(this.canvas) || []).concat([text]));
			return draw.apply(this, arguments);
		};
		document.querySelector("#theme").click();
		return true;
	})()`)
	b.until(`said.size === 3`)
	for _, labels := range eval[[][]string](b, `Array.from(said.values())`) {
		if slices.Sort(labels); len(labels) < 3 || len(slices.Compact(slices.Clone(labels))) != len(labels) {
			t.Errorf("the labels of a plot are %q", labels)
		}
	}
	b.clean("plots of less than a minute")
}
