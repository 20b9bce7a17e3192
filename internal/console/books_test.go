package console

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// haunted fills the books of a world: one effect of an undone task, one of no task, one that was accepted.
func (w *world) haunted() {
	at := w.now()
	w.compared = operate.BooksView{BooksResult: operate.BooksResult{Since: at.Add(-24 * time.Hour), Begun: at.Add(-time.Minute), At: at, Effects: 1204311, Tasks: 400000, Open: 12, Total: 2, Accepted: 1,
		Agents: []operate.AgentBooks{{Agent: "charge.v1", Effects: 1204311}, {Agent: "ship.v1", None: true}, {Agent: "mail.v1", Error: "it did not answer within 10s"}},
		Kinds:  map[operate.GhostKind]int64{operate.GhostOfUndone: 1, operate.GhostUnknown: 1}}}
	w.compared.Sentence = w.compared.BooksResult.Sentence()
	w.haunting = []operate.Ghost{
		{Kind: operate.GhostOfUndone, Agent: "charge.v1", Key: "order-1004/charge/0", Task: "order-1004", Type: "order", Step: "charge", State: core.StateUndone, Seq: 7, Times: 1, Made: at.Add(-time.Hour),
			Text: "the step was undone, or never done, and its effect stands", Found: at, Status: operate.GhostOpen, Repairs: operate.RepairsOf(true)},
		{Kind: operate.GhostUnknown, Agent: "charge.v1", Key: "order-9/charge/0", Task: "order-9", Step: "charge", Times: 1, Text: "the service has an effect of a task that is not known", Found: at, Status: operate.GhostOpen, Repairs: operate.RepairsOf(false)},
		{Kind: operate.GhostDoubled, Agent: "charge.v1", Key: "order-8/charge/0", Task: "order-8", Step: "charge", Times: 2, Text: "made twice", Found: at, Status: operate.GhostAccepted, By: "ada", Decided: at, Repair: operate.RepairAccept, Reason: "paid back by hand",
			Repairs: operate.RepairsOf(false)},
	}
}

// agreed empties them.
func (w *world) agreed() {
	w.compared.Total, w.compared.Kinds, w.compared.Agents, w.compared.Closed, w.haunting = 0, nil, w.compared.Agents[:1], true, nil
	w.compared.Accepted = 0
	w.compared.Sentence = w.compared.BooksResult.Sentence()
}

// ledger is operate.Books of a world.
type ledger struct{ *world }

func (l ledger) Books(context.Context) (operate.BooksView, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return l.compared, l.broken
}

func (l ledger) Ghosts(_ context.Context, statuses []operate.GhostStatus, _ int, _ string) (some []operate.Ghost, next string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.haunting {
		if slices.Contains(statuses, g.Status) {
			some = append(some, g)
		}
	}
	return some, "", l.broken
}

func (l ledger) Ghost(_ context.Context, agent, key string) (operate.Ghost, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.haunting {
		if g.Agent == agent && g.Key == key {
			return g, nil
		}
	}
	return operate.Ghost{}, core.ErrNotFound
}

func (l ledger) Compare(_ context.Context, by operate.Actor, reason string) (operate.BooksView, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compared.Asked = &operate.BooksAsked{ID: "a1", At: l.now(), By: by.Name}
	l.append(operate.AuditEntry{At: l.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "books.compare", Target: "books", Reason: reason, Outcome: "done"})
	return l.compared, nil
}

func (l ledger) Repair(_ context.Context, by operate.Actor, r operate.RepairRequest) (operate.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.keys[r.Key]; again {
		return operate.Answer{}, nil
	}
	for i := range l.haunting {
		g := &l.haunting[i]
		if g.Agent != r.Agent || g.Key != r.Effect {
			continue
		}
		if !g.Can(r.Repair) {
			return operate.Answer{}, &operate.Refusal{Code: 409, Field: "repair", Detail: "it cannot be undone by its task"}
		}
		g.Status, g.By, g.Repair, g.Reason, g.Decided = operate.GhostAsked, by.Name, r.Repair, r.Reason, l.now()
		if r.Repair == operate.RepairAccept {
			g.Status = operate.GhostAccepted
		}
		l.keys[r.Key] = operate.Answer{}
		l.append(operate.AuditEntry{At: l.now(), Actor: by.Name, Role: by.Role, Via: by.Via, Action: "books." + string(r.Repair), Target: "effect/" + g.Agent + "/" + g.Key, Reason: r.Reason, Outcome: "done"})
		return operate.Answer{Outcome: "asked"}, nil
	}
	return operate.Answer{}, core.ErrNotFound
}

// TestBooks: the page says what the comparison came to in the words of every face; a repair needs a reason and is carried
// out once; what cannot be pressed says why.
//
// covers: OP7, OP10, OP16
func TestBooks(t *testing.T) {
	w := fixedWorld()
	h := as(operate.RoleOperator, newConsole(t, w.config()))
	body := html.UnescapeString(get(t, h, Path+"books").Body.String())
	for _, want := range []string{w.compared.Sentence, "order-1004/charge/0", "The step was undone, but its effect is still at the service", "at row 7", "order-9/charge/0", "reverse it at the service, then accept it here", "it did not answer within 10s", "none kept"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(body, "order-8/charge/0") || strings.Contains(body, `class="booksline good"`) {
		t.Error("an accepted ghost is shown as open, or books that do not close are green")
	}
	if body := get(t, h, Path+"books?status=accepted").Body.String(); !strings.Contains(body, "paid back by hand") {
		t.Error("an accepted ghost is not found")
	}
	repair := Path + "books/repair?" + url.Values{"agent": {"charge.v1"}, "effect": {"order-1004/charge/0"}, "repair": {"undo"}}.Encode()
	form := fields(get(t, h, repair).Body.String())
	if rec := post(t, h, Path+"books/repair", form); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "Give a reason") || w.haunting[0].Status != operate.GhostOpen {
		t.Fatalf("without a reason: %d", rec.Code)
	}
	form.Set("reason", "the customer complained")
	before := len(w.entries)
	for range 2 {
		if rec := post(t, h, Path+"books/repair", form); rec.Code != http.StatusSeeOther {
			t.Fatalf("with a reason: %d %s", rec.Code, rec.Body)
		}
	}
	if g := w.haunting[0]; g.Status != operate.GhostAsked || g.By != "ada" || len(w.entries) != before+1 || w.entries[before].Via != "console" || w.entries[before].Reason != "the customer complained" {
		t.Errorf("%+v, %d entries more", g, len(w.entries)-before)
	}
	if rec := get(t, h, Path+"books/repair?agent=charge.v1&effect=none/charge/0&repair=undo"); rec.Code != http.StatusNotFound {
		t.Errorf("no such ghost: %d", rec.Code)
	}
	if rec := get(t, h, strings.Replace(repair, "repair=undo", "repair=burn", 1)); rec.Code != http.StatusBadRequest {
		t.Errorf("no such repair: %d", rec.Code)
	}
	if rec := post(t, h, Path+"books/compare", url.Values{}); rec.Code != http.StatusSeeOther || w.compared.Asked == nil {
		t.Errorf("compare: %d", rec.Code)
	}
	if body := get(t, h, Path+"books").Body.String(); !strings.Contains(body, "ada requested a comparison") {
		t.Error("what was asked for is not shown")
	}
	body = get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path+"books").Body.String()
	if strings.Contains(body, "books/repair?") || !strings.Contains(body, "Your role is viewer; this needs the role operator.") {
		t.Error("a viewer's buttons are not disabled with the reason")
	}
}

// TestBooksOnOverview: the first screen has the sentence, green where the books are closed, and leads to what does not agree.
//
// covers: OP7
func TestBooksOnOverview(t *testing.T) {
	w := fixedWorld()
	body := get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path).Body.String()
	for _, want := range []string{`class="booksline bad"`, w.compared.Sentence, `<a href="/console/books">2 effects do not agree with the journal</a>`, "1 effect belongs to no task that Duly knows"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	w.agreed()
	body = get(t, as(operate.RoleViewer, newConsole(t, w.config())), Path).Body.String()
	if !strings.Contains(body, `class="booksline good"`) || !strings.Contains(body, "Books closed at 12:00: the journal and the services agree on 1,204,311 effects.") || strings.Contains(body, "do not agree with the journal") {
		t.Error("closed books are not one green line")
	}
}

// TestBooksByKeyboard: from the first screen to a repair that is asked for, without a mouse.
//
// covers: OP15
func TestBooksByKeyboard(t *testing.T) {
	w := newWorld(time.Now)
	b := newBrowser(t, as(operate.RoleOperator, newConsole(t, w.config())))
	b.open("")
	b.tab(`e.tagName === "A" && e.textContent.indexOf("do not agree with the journal") > 0`)
	b.enter(`document.title.indexOf("Books") === 0`)
	undo := `e.tagName === "A" && e.textContent.indexOf("Undo") === 0`
	b.tab(undo)
	b.enter(`document.getElementById("dialog").open && document.activeElement.id === "d-reason"`)
	b.accessible("the dialog of a repair")
	b.keys(kb.Escape)
	b.until(`!document.getElementById("dialog").open`)
	b.tab(undo)
	b.enter(`document.activeElement.id === "d-reason"`)
	b.keys("the customer complained")
	b.tab(`e.type === "submit" && e.textContent === "Undo"`)
	b.enter(noDialog + `document.getElementById("told").textContent.indexOf("The undo was requested") >= 0`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.haunting[0]; g.Status != operate.GhostAsked || g.Reason != "the customer complained" {
		t.Errorf("%+v", g)
	}
	b.clean("a repair of the books")
}
