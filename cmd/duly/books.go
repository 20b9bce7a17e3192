package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/config"
	"duly.dev/duly/internal/node"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/pause"
	"duly.dev/duly/internal/say"
)

// booksCmd shows what the comparison of the journal with the books of the services came to, asks for one, and repairs.
type booksCmd struct {
	Now    bool          `help:"Ask for a comparison now, and wait for its end."`
	Wait   time.Duration `default:"10m" help:"With --now: how long to wait."`
	Status string        `enum:"open,asked,accepted," default:"" help:"Only ghosts that are open, asked or accepted (default: open and asked)."`
	Limit  int           `default:"50" help:"How many ghosts, 1 to 1000."`
	After  string        `help:"Cursor that the page before ended with."`

	Repair string `enum:"undo,accept," default:"" help:"Repair a ghost: undo (by its task's owner), or accept (it is explained)."`
	Effect string `help:"With --repair: key of the ghost."`
	Agent  string `help:"With --repair: its agent."`
	Reason string `help:"With --repair: why; it is kept in the audit trail."`
	Key    string `help:"With --repair: the same key is carried out once (default: a new one)."`

	Direct bool          `help:"Compare here, over the database and NATS, with the settings of a node; nothing is stored."`
	Since  time.Duration `default:"24h" help:"With --direct: compare effects and tasks of so long ago and younger."`
	server
	config.Config `embed:""`
}

// booksAnswer is the newest comparison with a page of ghosts.
type booksAnswer struct {
	operate.BooksView
	Ghosts []operate.Ghost `json:"ghosts"`
	Next   string          `json:"next,omitempty"`
}

// Run shows, compares or repairs. It fails where something does not agree or is not known.
func (c *booksCmd) Run(ctx context.Context, std streams) error {
	ways := 0
	for _, way := range []bool{c.Now, c.Repair != "", c.Direct} {
		if way {
			ways++
		}
	}
	switch {
	case ways > 1:
		return misuse("now, repair and direct: want one of them at most")
	case c.Repair == "" && c.Effect+c.Agent+c.Reason+c.Key != "":
		return misuse("effect, agent, reason and key go with --repair")
	case c.Wait <= 0:
		return misuse("wait: %v, want more than 0", c.Wait)
	case c.Direct:
		return c.direct(ctx, std)
	case c.DatabaseURL != "" && c.Server == "" && c.Profile == "":
		return misuse("database-url goes with --direct; else say which node by --server or --profile")
	case c.Repair != "":
		return c.repair(ctx, std)
	case c.Now:
		if err := c.compare(ctx); err != nil {
			return err
		}
	}
	a, data, err := answered[booksAnswer](c.read(ctx, pathOf("books"), queryOf(map[string]string{"status": c.Status, "limit": fmt.Sprint(c.Limit), "after": c.After})))
	if err != nil {
		return err
	}
	if c.Output != show.Text {
		err = c.list(std, data, "ghosts", "", ghostColumns)
	} else {
		a.print(std)
	}
	if err == nil && !a.Closed {
		return errUnclean
	}
	return err
}

// booksEvery is how often a comparison that was asked for is looked after.
const booksEvery = 500 * time.Millisecond

// compare asks for a comparison and waits for its end.
func (c *booksCmd) compare(ctx context.Context) error {
	data, err := c.send(ctx, http.MethodPost, pathOf("books", "compare"), show.Object{}, nil)
	if err != nil {
		return err
	}
	var asked operate.BooksView
	if err := json.Unmarshal(data, &asked); err != nil || asked.Asked == nil {
		return fmt.Errorf("answer of the API: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	for {
		if pause.For(ctx, booksEvery) != nil {
			return fmt.Errorf("books: the comparison has not ended within %v: does a node with the role supervisor lead?", c.Wait)
		}
		now, _, err := answered[operate.BooksView](c.read(ctx, pathOf("books"), queryOf(map[string]string{"limit": "1"})))
		if err != nil {
			return err
		}
		switch {
		case now.Answers == asked.Asked.ID || now.Asked == nil:
			return nil
		case now.Failed != nil && now.Failed.At.After(asked.Asked.At):
			return fmt.Errorf("books: the comparison did not come to its end: %s", show.Clean(now.Failed.Text))
		}
	}
}

// repair asks for a repair of one ghost.
func (c *booksCmd) repair(ctx context.Context, std streams) error {
	if c.Effect == "" || c.Agent == "" {
		return misuse("repair: want --effect and --agent, as `duly books` shows them")
	}
	reason, err := reasonOf(std, c.Reason, true)
	if err != nil {
		return err
	}
	once := keyed{c.Key}
	body := show.Object{"agent": c.Agent, "effect": c.Effect, "repair": c.Repair, "reason": reason}
	a, data, err := answered[operate.Answer](c.send(ctx, http.MethodPost, pathOf("books", "repair"), body, once.header()))
	if err != nil {
		return once.unsure("repair", err)
	}
	return c.said(std, data, answerColumns, "%s", say.Of("cli.repaired", "effect", c.Effect, "outcome", show.Clean(a.Outcome), "entry", a.Audit))
}

// direct compares without a node.
func (c *booksCmd) direct(ctx context.Context, std streams) error {
	if c.Since <= 0 || c.Since > 365*24*time.Hour {
		return misuse("since: %v, want more than 0 and at most 8760h", c.Since)
	}
	report, err := node.CompareBooks(ctx, c.Config, time.Now().Add(-c.Since))
	if err != nil {
		return fmt.Errorf("books: %w", err)
	}
	a := booksAnswer{BooksView: operate.BooksView{BooksResult: report.BooksResult, Sentence: report.Sentence()}, Ghosts: report.Ghosts}
	if c.Output != show.Text {
		data, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("books: %w", err)
		}
		if err := c.list(std, data, "ghosts", "", ghostColumns); err != nil {
			return err
		}
	} else {
		a.print(std)
	}
	if !report.Closed {
		return errUnclean
	}
	return nil
}

// print prints the sentence, the agents whose books are not known, and the ghosts.
func (a *booksAnswer) print(std streams) {
	fmt.Fprintln(std.out, show.Clean(a.Sentence))
	if a.Asked != nil {
		fmt.Fprintln(std.out, " ", say.Of("books.running", "by", show.Clean(a.Asked.By), "at", say.Of("why.at", "at", a.Asked.At.UTC().Format(time.RFC3339))))
	}
	if a.Failed != nil {
		fmt.Fprintln(std.out, " ", say.Of("books.not-ended", "at", say.Of("why.at", "at", a.Failed.At.UTC().Format(time.RFC3339)), "error", show.Clean(a.Failed.Text)))
	}
	for _, agent := range a.Agents {
		if agent.Error != "" {
			fmt.Fprintf(std.out, "  %s: %s\n", show.Clean(agent.Agent), show.Clean(agent.Error))
		}
	}
	for i := range a.Ghosts {
		g := &a.Ghosts[i]
		fmt.Fprintf(std.out, "  %s  %s  %s\n", g.Status, g.Kind, say.Of("cli.ghost", "key", show.Clean(g.Key), "agent", show.Clean(g.Agent), "task", show.Clean(g.Task), "type", show.Clean(g.Type), "text", show.Clean(g.Text)))
		if g.By != "" {
			fmt.Fprintf(std.out, "      %s by %s at %s: %s\n", g.Repair, show.Clean(g.By), g.Decided.UTC().Format(time.RFC3339), show.Clean(g.Reason))
		}
	}
	if a.Next != "" {
		fmt.Fprintf(std.out, "more: --after %q\n", show.Clean(a.Next))
	}
}
