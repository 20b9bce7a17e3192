package console

import (
	"context"
	"encoding/json"
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

// putChannel makes a channel of alerts, or replaces the one that the address names.
func (c *console) putChannel(r *http.Request) (*dialog, error) {
	ctx, cancel := reading(r)
	defer cancel()
	name := r.PathValue("name")
	d := &dialog{Title: "New channel", Go: "Create", URL: c.url("settings", "alerts", "new"), Back: c.url("settings") + "#alerts", NoReason: true,
		What: say.Of("channel.what")}
	document, put := []byte(channelExample), &operate.Act{Action: "channel.put", By: actorOf(r)}
	if name == "" {
		name = strings.TrimSpace(r.PostForm.Get("name"))
		d.Fields = []field{{Name: "name", Label: "Name", Required: true}}
	} else {
		var err error
		if document, err = c.Alerts.Document(ctx, name); err != nil {
			return nil, err
		}
		put.Before = json.RawMessage(document)
		d.Title, d.Go, d.URL = "Channel "+name, "Save", c.url("settings", "alerts", name, "edit")
	}
	d.Fields = append(d.Fields, field{Name: "document", Label: "Channel (JSON)", Value: string(document), Rows: 10, Required: true},
		field{Name: "secret", Label: "Secret", Secret: true, Hint: say.Of("channel.secret")})
	d.told = "The channel " + name + " is stored."
	d.do = func(ctx context.Context, typed form) error {
		// What is no channel is said in the dialog, and in no trail: a secret may stand where it does not belong.
		clean, err := c.Alerts.Check(name, []byte(r.PostForm.Get("document")))
		if err != nil {
			return err
		}
		var secret *string
		if text := r.PostForm.Get("secret"); text != "" {
			secret = &text
		}
		put.Target, put.After, put.Reason = "channel/"+core.ShortText(name, core.NameBytesMax), json.RawMessage(clean), typed("reason")
		return c.Desk.Change(ctx, put, func(ctx context.Context) error { return c.Alerts.Put(ctx, name, clean, secret) })
	}
	return d, nil
}

// forgetChannel deletes a channel of alerts.
func (c *console) forgetChannel(r *http.Request) (*dialog, error) {
	name := r.PathValue("name")
	return &dialog{Title: "Delete the channel " + name, Go: "Delete", URL: c.url("settings", "alerts", name, "delete"), Back: c.url("settings") + "#alerts", ReasonIs: true, Danger: true,
		What: say.Of("channel.delete"), told: "Deleted.",
		act: &operate.Act{Action: "channel.delete", Target: "channel/" + core.ShortText(name, core.NameBytesMax)},
		do:  func(ctx context.Context, _ form) error { return c.Alerts.Delete(ctx, name) }}, nil
}
