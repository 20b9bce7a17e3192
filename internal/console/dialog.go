package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// dialog is a change with a reason, and little else: what its form shows, and what is done with what was typed.
type dialog struct {
	Title, What, URL, Back, Go string
	Fields                     []field
	Reason                     string
	ReasonIs                   bool // a reason is required
	NoReason                   bool // none is asked for
	Danger                     bool
	Bad, Field                 string
	Secret                     string // told once
	Hidden                     map[string]string

	act  *operate.Act // of the audit trail; nil: the port that is asked writes it down
	told string       // when it is done
	do   func(ctx context.Context, typed form) error
}

// field is one line of such a dialog.
type field struct {
	Name, Label, Value, Hint string
	Options                  []string
	Required                 bool
	Rows                     int  // lines of a longer text; 0: one line
	Secret                   bool // it is not shown, not even to who typed it
}

// form is what was typed into a field, without the blanks around it.
type form func(name string) string

// insists reports whether the field that has a change made all the same says so.
func (f form) insists(name string) bool { return f(name) == insisted }

const insisted = "yes"

// opener makes the dialog that a request is about, of a form that is shown as of one that was sent.
type opener func(r *http.Request) (*dialog, error)

// offer shows a dialog, whose address may have some parameters; none: any.
func (c *console) offer(section string, open opener, params []string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if len(params) > 0 {
			if bad := known(r, params...); bad != nil {
				return bad
			}
		}
		d, err := open(r)
		if err != nil {
			return err
		}
		return c.confirm(w, r, http.StatusOK, section, d)
	}
}

func (c *console) confirm(w http.ResponseWriter, r *http.Request, code int, section string, d *dialog) error {
	return c.show(w, r, code, "confirm", page{Title: d.Title, Section: section, Data: d})
}

// carry does what a dialog asks for; what is refused is shown in the dialog again.
func (c *console) carry(section string, open opener) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		d, err := open(r)
		if err == nil {
			err = c.ask(r, d)
		}
		bad := new(operate.Refusal)
		switch {
		case err == nil && d.Secret != "":
			return c.confirm(w, r, http.StatusOK, section, d)
		case err == nil:
			return c.done(w, r, d.Back, d.told)
		case d == nil || !errors.As(err, &bad):
			return err
		}
		if key := d.Hidden["key"]; key != "" {
			d.Hidden["key"] = nextKey(key, bad)
		}
		if d.Bad, d.Field = bad.Detail, bad.Field; bad.Insist != "" {
			d.Fields = append(d.Fields, field{Name: bad.Insist, Label: say.Of("dialog.insist"), Value: "no", Options: []string{"no", insisted}})
		}
		return c.confirm(w, r, bad.Code, section, d)
	}
}

// ask keeps what was typed, and does what a dialog asks for.
func (c *console) ask(r *http.Request, d *dialog) error {
	ctx, cancel := reading(r)
	defer cancel()
	typed := form(func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) })
	d.Reason = typed("reason")
	for i := range d.Fields {
		if !d.Fields[i].Secret {
			d.Fields[i].Value = r.PostForm.Get(d.Fields[i].Name)
		}
	}
	if d.ReasonIs && d.Reason == "" {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "reason", Detail: say.Of("act.reason")}
	}
	if err := core.CheckWords("The reason", d.Reason); err != nil {
		return &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "reason", Detail: err.Error() + "."}
	}
	if d.act == nil {
		return d.do(ctx, typed)
	}
	d.act.By, d.act.Reason = actorOf(r), d.Reason
	return c.Desk.Change(ctx, d.act, func(ctx context.Context) error { return d.do(ctx, typed) })
}

// lasting is until when a form says that something lasts; zero: without an end.
func (c *console) lasting(typed form) (time.Time, error) {
	if typed("for") == "" {
		return time.Time{}, nil
	}
	d, bad := durationIn("for", typed("for"))
	if bad != nil {
		bad.Code = http.StatusUnprocessableEntity
		return time.Time{}, bad
	}
	return c.Now().Add(d), nil
}
