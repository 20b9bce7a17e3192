package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"duly.dev/duly/internal/alerts"
	"duly.dev/duly/internal/operate"
)

type (
	// ChannelIn is a channel of alerts in a path.
	ChannelIn struct {
		Name string `path:"name" maxLength:"64"`
	}
	putChannelIn struct {
		ChannelIn
		Body struct {
			alerts.Channel
			Secret *string `json:"secret,omitempty" maxLength:"4096" writeOnly:"true" doc:"signing secrets of a webhook, one a line, or the password of mail: kept in the database, and shown nowhere. Absent: with secret_stored the one that is kept, if the address is the same, without it none"`
		}
	}
	// channelJSON is a channel as it is stored, and how it does.
	channelJSON struct {
		Name string `json:"name"`
		alerts.Channel
		Sent   int64      `json:"sent" doc:"alerts that it took since this node's sender leads"`
		Failed int64      `json:"failed" doc:"alerts that were given up"`
		Error  string     `json:"error,omitempty" doc:"of the newest attempt, if that failed, or of the channel"`
		Tried  *time.Time `json:"tried,omitempty" doc:"when the newest attempt was; absent: none was made from this node"`
	}
	channelsJSON struct {
		Channels []channelJSON `json:"channels"`
	}
	testedJSON struct {
		Channel string `json:"channel"`
		Outcome string `json:"outcome"`
	}
)

func channelOf(s *alerts.Stored) channelJSON {
	c := channelJSON{Name: s.Name, Channel: s.Channel, Sent: s.State.Sent, Failed: s.State.Failed, Error: s.State.Error}
	if s.Broken != "" {
		c.Error = s.Broken
	}
	if at := s.State.At.UTC(); !s.State.At.IsZero() {
		c.Tried = &at
	}
	return c
}

// channelChange is what the audit trail has of a channel: all but its secret.
type channelChange struct {
	alerts.Channel
	Secret string `json:"secret,omitempty"` // "given" where the change brought one
}

// alertRoutes are the channels of alerts.
func (a *api) alertRoutes() {
	const tag, path = "admin", "/v1/settings/alerts"
	whole(a, route{method: "GET", path: path, id: "listAlertChannels", tag: tag, needs: operate.RoleAdmin, summary: "Channels of alerts, without their secrets"},
		func(rows []channelJSON) channelsJSON { return channelsJSON{rows} }, func(ctx context.Context) (rows []channelJSON, err error) {
			all, err := a.ports.Alerts.All(ctx)
			for i := range all {
				rows = append(rows, channelOf(&all[i]))
			}
			return rows, err
		})
	register(a, route{method: "GET", path: path + "/{name}", id: "getAlertChannel", tag: tag, needs: operate.RoleAdmin, summary: "One channel of alerts, without its secret"},
		func(ctx context.Context, in *ChannelIn) (channelJSON, error) {
			one, err := a.ports.Alerts.Get(ctx, in.Name)
			return channelOf(&one), err
		})
	changing(a, route{method: http.MethodPut, path: path + "/{name}", id: "putAlertChannel", tag: tag, needs: operate.RoleAdmin,
		summary: "Make a channel of alerts, or replace one", about: "It is taken up within seconds."},
		func(ctx context.Context, in *putChannelIn) error {
			c := in.Body.Channel
			c.Name = in.Name
			after := channelChange{Channel: c}
			if in.Body.Secret != nil {
				after.Secret = "given"
			}
			put := operate.Act{Action: "channel.put", Target: "channel/" + in.Name, After: after}
			before, err := a.ports.Alerts.Get(ctx, in.Name)
			if err == nil {
				put.Before = channelChange{Channel: before.Channel}
			} else if bad, ok := errors.AsType[*operate.Refusal](err); !ok || bad.Code != http.StatusNotFound {
				return err
			}
			return a.ports.Desk.Change(ctx, &put, func(ctx context.Context) error { return a.ports.Alerts.Put(ctx, c, in.Body.Secret) })
		})
	changing(a, route{method: http.MethodDelete, path: path + "/{name}", id: "deleteAlertChannel", tag: tag, needs: operate.RoleAdmin, summary: "Forget a channel of alerts and its secret"},
		func(ctx context.Context, in *ChannelIn) error {
			before, err := a.ports.Alerts.Get(ctx, in.Name)
			if err != nil {
				return err
			}
			return a.ports.Desk.Change(ctx, &operate.Act{Action: "channel.delete", Target: "channel/" + in.Name, Before: channelChange{Channel: before.Channel}}, func(ctx context.Context) error {
				return a.ports.Alerts.Delete(ctx, in.Name)
			})
		})
	register(a, route{method: http.MethodPost, path: path + "/{name}/test", id: "testAlertChannel", tag: tag, needs: operate.RoleAdmin,
		summary: "Send a test alert through a channel", about: "Once, and whatever the channel wants to hear. 502 has what the receiver says."},
		func(ctx context.Context, in *ChannelIn) (out testedJSON, err error) {
			if _, err := a.ports.Alerts.Get(ctx, in.Name); err != nil {
				return out, err
			}
			err = a.ports.Desk.Change(ctx, &operate.Act{Action: "alert.test", Target: "channel/" + in.Name}, func(ctx context.Context) error { return a.ports.Alerts.Test(ctx, in.Name) })
			return testedJSON{in.Name, "the channel took the test alert"}, err
		})
}
