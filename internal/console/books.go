package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// needBooks shows whether journal and services agree, and names what does not.
func (c *console) needBooks(ctx context.Context, d *overviewData) error {
	view, err := c.closed.get(ctx, c.Now, func(ctx context.Context) (*operate.BooksView, error) {
		v, err := c.Books.Books(ctx)
		return &v, err
	})
	if err != nil {
		return fmt.Errorf("books: %w", err)
	}
	d.Books = view
	if view.Total == 0 {
		return nil
	}
	n := &operate.Need{Kind: needsBooks, Title: say.Of("books.need", "n", view.Total), At: d.At}
	for _, kind := range operate.GhostKinds {
		if found := view.Kinds[kind]; found > 0 {
			n.Lines = append(n.Lines, operate.NeedLine{Text: say.Of("books.need-"+string(kind), "n", found)})
		}
	}
	d.Needs = append(d.Needs, need{n, needFaces[n.Kind], d.At})
	return nil
}

// needsBooks is a need that the books have; see operate.Bookkeeping.
const needsBooks operate.NeedKind = "books"

// kindWords say what a kind of ghost is.
var kindWords = map[operate.GhostKind]string{
	operate.GhostOfUndone: say.Of("ghost.kind-undone"),
	operate.GhostMissing:  say.Of("ghost.kind-missing"),
	operate.GhostDoubled:  say.Of("ghost.kind-doubled"),
	operate.GhostUnknown:  say.Of("ghost.kind-unknown"),
}

// ghostRow is a ghost with what may be done about it.
type ghostRow struct {
	operate.Ghost
	Words   string
	TaskURL string
	Buttons []changeButton
}

type booksData struct {
	View     operate.BooksView
	Class    string
	Ghosts   []ghostRow
	Statuses []operate.GhostStatus
	Status   operate.GhostStatus // that is shown; empty: open and asked
	Next     string
	First    bool
	Query    string
	Why      string // why nothing may be pressed; empty: it may
}

// ghostStatuses are what the page can be asked for.
var ghostStatuses = []operate.GhostStatus{operate.GhostOpen, operate.GhostAsked, operate.GhostAccepted}

// books shows the newest comparison of journal and services.
func (c *console) books(ctx context.Context, r *http.Request) (page, error) {
	q := r.URL.Query()
	d := booksData{Statuses: ghostStatuses, Status: operate.GhostStatus(q.Get("status")), First: q.Get("after") == ""}
	wanted := []operate.GhostStatus{operate.GhostOpen, operate.GhostAsked}
	if d.Status != "" {
		if !slices.Contains(ghostStatuses, d.Status) {
			return page{}, &operate.Refusal{Code: http.StatusBadRequest, Field: "status", Detail: fmt.Sprintf("status is %s, want one of %v.", core.QuoteShort(string(d.Status)), ghostStatuses)}
		}
		wanted, d.Query = []operate.GhostStatus{d.Status}, "status="+string(d.Status)
	}
	var err error
	if d.View, err = c.Books.Books(ctx); err != nil {
		return page{}, err
	}
	ghosts, next, err := c.Books.Ghosts(ctx, wanted, rowsOfList, q.Get("after"))
	if err != nil {
		return page{}, err
	}
	d.Class, d.Next = d.View.Class(), nextPage(r, next)
	d.Why = operate.WhyNotRole(actorOf(r), operate.RoleOperator)
	for _, g := range ghosts {
		row := ghostRow{Ghost: g, Words: kindWords[g.Kind]}
		if g.Type != "" {
			row.TaskURL = c.taskURL(g.Type, g.Task)
		}
		for _, b := range c.repairButtons(&g) {
			if b.Why == "" {
				b.Why = d.Why
			}
			row.Buttons = append(row.Buttons, b)
		}
		d.Ghosts = append(d.Ghosts, row)
	}
	return page{Title: "Books", Data: d}, nil
}

// repairButtons are the repairs of a ghost.
func (c *console) repairButtons(g *operate.Ghost) []changeButton {
	if g.Status == operate.GhostAccepted {
		return nil
	}
	address := func(r operate.Repair) string {
		return c.url("books", "repair") + "?" + url.Values{"agent": {g.Agent}, "effect": {g.Key}, "repair": {string(r)}}.Encode()
	}
	undo := changeButton{Change: string(operate.RepairUndo), Title: "Undo", URL: address(operate.RepairUndo), Danger: true}
	if !g.Can(operate.RepairUndo) {
		undo.Why = say.Of("books.by-hand")
	}
	return []changeButton{undo, {Change: string(operate.RepairAccept), Title: "Accept", URL: address(operate.RepairAccept)}}
}

// compareBooks asks for a comparison.
func (c *console) compareBooks(r *http.Request) (*dialog, error) {
	return &dialog{Title: "Compare now", Go: "Compare", URL: c.url("books", "compare"), Back: c.url("books"), What: say.Of("books.compare"), told: say.Of("books.asked"),
		do: func(ctx context.Context, typed form) error {
			_, err := c.Books.Compare(ctx, actorOf(r), typed("reason"))
			return err
		}}, nil
}

// repairBooks asks for the repair of a ghost, which the address names, and then the form.
func (c *console) repairBooks(r *http.Request) (*dialog, error) {
	q := r.URL.Query()
	if r.Method == http.MethodPost {
		q = r.PostForm
	}
	asked := operate.RepairRequest{Agent: q.Get("agent"), Effect: q.Get("effect"), Repair: operate.Repair(q.Get("repair")), Key: keyOf(r)["key"]}
	ctx, cancel := reading(r)
	defer cancel()
	g, err := c.Books.Ghost(ctx, asked.Agent, asked.Effect)
	if err != nil {
		return nil, err
	}
	d := &dialog{URL: c.url("books", "repair"), Back: c.url("books"), ReasonIs: true, Hidden: map[string]string{"agent": g.Agent, "effect": g.Key, "repair": string(asked.Repair), "key": asked.Key},
		told: say.Of("books.told-undo"),
		do: func(ctx context.Context, typed form) error {
			asked.Reason = typed("reason")
			_, err := c.Books.Repair(ctx, actorOf(r), asked)
			return err
		}}
	switch {
	case asked.Repair == operate.RepairAccept:
		d.Title, d.Go, d.told = "Accept "+g.Key, "Accept", say.Of("books.told-accepted")
		d.What = say.Of("books.accept", "text", g.Text)
	case asked.Repair == operate.RepairUndo && g.State == core.StateProcessed:
		d.Title, d.Go, d.Danger = "Undo task "+g.Task, "Undo", true
		d.What = say.Of("books.undo-task", "agent", g.Agent)
	case asked.Repair == operate.RepairUndo:
		d.Title, d.Go, d.Danger = "Undo "+g.Key, "Undo", true
		d.What = say.Of("books.undo-step", "agent", g.Agent, "step", g.Step)
	default:
		return nil, &operate.Refusal{Code: http.StatusBadRequest, Field: "repair", Detail: fmt.Sprintf("repair is %s, want undo or accept.", core.QuoteShort(string(asked.Repair)))}
	}
	return d, nil
}
