package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

// SecretPrefix + name of the channel is the document of a secret that is kept in the setting store. No face shows it.
const SecretPrefix = "alerts/secrets/"

// keptSecret is the document of a secret.
type keptSecret struct {
	Secret string `json:"secret"`
	For    string `json:"for"` // the address that it was given for: it goes nowhere else
}

// errElsewhere says that a channel leads elsewhere than when its secret was given, perhaps by who may not know it.
var errElsewhere = errors.New("its secret was given for another address: give it again")

// address is where a channel's secret goes, and how.
func (c *Channel) address() string {
	return strings.Join([]string{c.Kind, c.URL, c.Server, c.Username}, " ")
}

// keptFor reads the stored secret of a channel. Error: errElsewhere, core.ErrNotFound, the store's.
func keptFor(ctx context.Context, store operate.SettingStore, c *Channel) (string, error) {
	document, err := store.Setting(ctx, SecretPrefix+c.Name)
	if err != nil {
		return "", err
	}
	var kept keptSecret
	if json.Unmarshal(document, &kept) != nil || kept.For != c.address() {
		return "", errElsewhere
	}
	return kept.Secret, nil
}

// Book is the channels as they are stored, for those who manage them.
type Book struct {
	Store  operate.SettingStore
	Sender func() *Sender // what delivers on this node; nil: nothing does
}

// Stored is a channel as it is stored and how it does. It holds no secret.
type Stored struct {
	Channel
	State  ChannelState // as this node's sender knows; its Name is empty where that has not tried the channel
	Broken string       // why its document is of no use; empty: it is
}

// All are the channels by name.
func (b *Book) All(ctx context.Context) ([]Stored, error) {
	documents, err := b.Store.Settings(ctx, ChannelPrefix)
	if err != nil {
		return nil, fmt.Errorf("channels of alerts: %w", err)
	}
	states := map[string]ChannelState{}
	if sender := b.sender(); sender != nil {
		for _, s := range sender.Channels() {
			states[s.Name] = s
		}
	}
	all := make([]Stored, 0, len(documents))
	for _, key := range slices.Sorted(maps.Keys(documents)) {
		one := Stored{}
		name := strings.TrimPrefix(key, ChannelPrefix)
		if one.Channel, err = parseChannel(name, documents[key]); err != nil {
			one.Broken = core.ShortText(err.Error(), textMax)
		}
		one.Name, one.State = name, states[name]
		all = append(all, one)
	}
	return all, nil
}

// Get is one channel, as it is stored. Error: *operate.Refusal, 404.
func (b *Book) Get(ctx context.Context, name string) (Stored, error) {
	if err := core.CheckName("channel", name); err != nil {
		return Stored{}, refuse(http.StatusBadRequest, "name", "%v", err)
	}
	all, err := b.All(ctx)
	if err != nil {
		return Stored{}, err
	}
	i := slices.IndexFunc(all, func(s Stored) bool { return s.Name == name })
	if i < 0 {
		return Stored{}, refuse(http.StatusNotFound, "", "no channel %s", core.QuoteShort(name))
	}
	return all[i], nil
}

// Put stores a channel in place of the one of that name, and its secret where one is given: nil keeps the one that is
// stored if the channel says that there is one and its address is the same, and else forgets it. Delivery takes it up within seconds. Error:
// *operate.Refusal.
func (b *Book) Put(ctx context.Context, c Channel, secret *string) error {
	before, err := b.Store.Settings(ctx, ChannelPrefix)
	if err != nil {
		return fmt.Errorf("channels of alerts: %w", err)
	}
	if _, there := before[ChannelPrefix+c.Name]; !there && len(before) >= ChannelsMax {
		return refuse(http.StatusConflict, "", "there are %d channels, the limit; delete one first", len(before))
	}
	if secret != nil {
		c.SecretStored = true
	} else if c.SecretStored {
		if _, err := keptFor(ctx, b.Store, &c); errors.Is(err, core.ErrNotFound) {
			return refuse(http.StatusBadRequest, "secret_stored", "secret_stored is true, and no secret of channel %s is stored: give it as secret", c.Name)
		} else if errors.Is(err, errElsewhere) {
			return refuse(http.StatusBadRequest, "secret_stored", "channel %s: %v", c.Name, err)
		} else if err != nil {
			return fmt.Errorf("secret of channel %s: %w", c.Name, err)
		}
	}
	document, err := json.Marshal(&c)
	if err != nil {
		return fmt.Errorf("channel %s: %w", c.Name, err)
	}
	if _, err := parseChannel(c.Name, document); err != nil {
		return refuse(http.StatusBadRequest, fieldOf(err), "%v", err)
	}
	if secret != nil {
		if err := c.checkSecret(*secret); err != nil {
			return refuse(http.StatusBadRequest, "secret", "secret: %v", err)
		}
		kept, err := json.Marshal(keptSecret{*secret, c.address()})
		if err != nil {
			return fmt.Errorf("secret of channel %s: not encoded", c.Name)
		}
		if err := b.Store.PutSetting(operate.Apart(ctx), SecretPrefix+c.Name, kept); err != nil {
			return fmt.Errorf("secret of channel %s: %w", c.Name, err)
		}
	}
	if err := b.Store.PutSetting(ctx, ChannelPrefix+c.Name, document); err != nil {
		return fmt.Errorf("channel %s: %w", c.Name, err)
	}
	if !c.SecretStored {
		return b.forget(ctx, c.Name)
	}
	return nil
}

// Delete forgets a channel and its secret. Error: *operate.Refusal, 404.
func (b *Book) Delete(ctx context.Context, name string) error {
	if _, err := b.Get(ctx, name); err != nil {
		return err
	}
	if err := b.Store.DeleteSetting(ctx, ChannelPrefix+name); err != nil {
		return fmt.Errorf("channel %s: %w", name, err)
	}
	return b.forget(ctx, name)
}

func (b *Book) forget(ctx context.Context, name string) error {
	if err := b.Store.DeleteSetting(ctx, SecretPrefix+name); err != nil && !errors.Is(err, core.ErrNotFound) {
		return fmt.Errorf("secret of channel %s: %w", name, err)
	}
	return nil
}

// Test sends a test alert through a channel, once, and waits for the answer. Error: *operate.Refusal: 502 with what the
// receiver, or the way to it, says; 503 where nothing is delivered from here.
func (b *Book) Test(ctx context.Context, name string) error {
	if _, err := b.Get(ctx, name); err != nil {
		return err
	}
	sender := b.sender()
	if sender == nil {
		return refuse(http.StatusServiceUnavailable, "", "this node does not deliver alerts: ask one with the role supervisor")
	}
	if err := sender.Test(ctx, name); err != nil {
		return refuse(http.StatusBadGateway, "", "%s", core.ShortText(err.Error(), textMax))
	}
	return nil
}

func (b *Book) sender() *Sender {
	if b.Sender == nil {
		return nil
	}
	return b.Sender()
}

func refuse(code int, field, format string, a ...any) *operate.Refusal {
	return &operate.Refusal{Code: code, Field: field, Detail: fmt.Sprintf(format, a...)}
}

// fieldOf is the field that an error of a channel's document begins with, after the channel's name.
func fieldOf(err error) string {
	parts := strings.SplitN(err.Error(), ": ", 3)
	if len(parts) < 3 || strings.ContainsAny(parts[1], " \"") {
		return ""
	}
	return parts[1]
}

// checkSecret refuses a secret that could not be used.
func (c *Channel) checkSecret(secret string) error {
	if n := len(secret); n == 0 || n > secretBytesMax {
		return fmt.Errorf("%d bytes, want 1 to %d", n, secretBytesMax)
	}
	if c.Kind == kindWebhook && !strings.Contains(c.URL, secretInURL) {
		_, err := signingKeys(secret)
		return err
	}
	if strings.ContainsFunc(secret, unicode.IsControl) {
		return errors.New("it has a control character")
	}
	return nil
}

// secret reads a channel's secret, wherever it is kept; empty: it has none. What the store does not give now may come
// with the next try.
func (s *Sender) secret(ctx context.Context, c *Channel) (string, error) {
	if !c.SecretStored {
		secret, err := c.secret(s.cfg.SecretsDir)
		if err != nil {
			return "", finalError{err}
		}
		return secret, nil
	}
	secret, err := keptFor(ctx, s.cfg.Store, c)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return "", finalError{errors.New("its secret is not stored any more")}
	case errors.Is(err, errElsewhere):
		return "", finalError{err}
	}
	return secret, err
}
