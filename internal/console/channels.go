package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// channelExample is what the form for a new channel begins with.
const channelExample = `{
  "kind": "webhook",
  "url": "https://hooks.example.org/duly",
  "severity": "warning"
}`

// channelDialog is the form for a channel of alerts; an empty name is a new one.
func (c *console) channelDialog(ctx context.Context, name string) (confirmData, []byte, error) {
	if c.Alerts == nil {
		return confirmData{}, nil, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "alerts")}
	}
	d := confirmData{Title: "New channel", Go: "Create", URL: c.url("settings", "alerts", "new"), Back: c.url("settings") + "#alerts", NoReason: true,
		What: say.Of("channel.what")}
	document := []byte(channelExample)
	if name == "" {
		d.Fields = []field{{Name: "name", Label: "Name", Required: true}}
	} else {
		var err error
		if document, err = c.Alerts.Document(ctx, name); err != nil {
			return d, nil, err
		}
		d.Title, d.Go, d.URL = "Channel "+name, "Save", c.url("settings", "alerts", name, "edit")
	}
	d.Fields = append(d.Fields, field{Name: "document", Label: "Channel (JSON)", Value: string(document), Rows: 10, Required: true},
		field{Name: "secret", Label: "Secret", Secret: true, Hint: say.Of("channel.secret")})
	return d, document, nil
}

func (c *console) channelForm(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := reading(r)
	defer cancel()
	d, _, err := c.channelDialog(ctx, r.PathValue("name"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "settings", d)
}

// putChannel makes a channel, or replaces one.
func (c *console) putChannel(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := reading(r)
	defer cancel()
	name := r.PathValue("name")
	d, before, err := c.channelDialog(ctx, name)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	if name == "" {
		name, before = strings.TrimSpace(r.PostForm.Get("name")), nil
	}
	put := operate.Act{Action: "channel.put", Target: "channel/" + core.ShortText(name, core.NameBytesMax)}
	if before != nil {
		put.Before = json.RawMessage(before)
	}
	// What is no channel is said in the dialog, and in no trail: a secret may stand where it does not belong.
	document, bad := c.checkChannel(name, r.PostForm.Get("document"))
	if put.After = document; bad != nil {
		for i := range d.Fields {
			if !d.Fields[i].Secret {
				d.Fields[i].Value = r.PostForm.Get(d.Fields[i].Name)
			}
		}
		d.Bad, d.Field = bad.Detail, bad.Field
		c.confirm(w, r, bad.Code, "settings", d)
		return
	}
	var secret *string
	if text := r.PostForm.Get("secret"); text != "" {
		secret = &text
	}
	c.carry(w, r, "settings", d, &put, "The channel "+name+" is stored.", func(ctx context.Context) error {
		return c.Alerts.Put(ctx, name, document, secret)
	})
}

func (c *console) checkChannel(name, document string) (json.RawMessage, *operate.Refusal) {
	clean, err := c.Alerts.Check(name, []byte(document))
	if err == nil {
		return clean, nil
	}
	bad := new(operate.Refusal)
	if !errors.As(err, &bad) {
		bad = &operate.Refusal{Code: http.StatusUnprocessableEntity, Field: "document", Detail: err.Error()}
	}
	return nil, bad
}

func (c *console) forgetDialog(r *http.Request) (confirmData, error) {
	if c.Alerts == nil {
		return confirmData{}, &operate.Refusal{Code: http.StatusNotFound, Detail: say.Of("console.absent", "what", "alerts")}
	}
	name := r.PathValue("name")
	return confirmData{Title: "Delete the channel " + name, Go: "Delete", URL: c.url("settings", "alerts", name, "delete"), Back: c.url("settings") + "#alerts", ReasonIs: true, Danger: true,
		What: say.Of("channel.delete")}, nil
}

func (c *console) forgetChannelForm(w http.ResponseWriter, r *http.Request) {
	d, err := c.forgetDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.confirm(w, r, http.StatusOK, "settings", d)
}

func (c *console) forgetChannel(w http.ResponseWriter, r *http.Request) {
	d, err := c.forgetDialog(r)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	name := r.PathValue("name")
	c.carry(w, r, "settings", d, &operate.Act{Action: "channel.delete", Target: "channel/" + core.ShortText(name, core.NameBytesMax)}, "Deleted.", func(ctx context.Context) error {
		return c.Alerts.Delete(ctx, name)
	})
}
