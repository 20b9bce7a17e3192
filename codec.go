package duly

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/seal"
)

// Place says which payload is meant: the input of a task, or the result of one of its steps.
type Place struct {
	Type string // of the task
	Task string // its id
	Step string // whose result it is; empty: the task's input
}

// String is for errors.
func (p Place) String() string {
	if p.Step == "" {
		return "input of task " + p.Task
	}
	return "result of step " + p.Step + " of task " + p.Task
}

// Codec changes payloads on their way: see [WithCodec]. It is used from several goroutines at a time.
type Codec interface {
	// Encode makes the JSON that is sent and stored of a payload. The same payload at the same place has to give the same
	// bytes: by them a submission that is made again is known as the same. The most that is stored, 256 KiB of an input
	// and 64 KiB of a result unless the plan says less, is of the encoded payload.
	Encode(at Place, payload []byte) ([]byte, error)
	// Decode gives the payload back. Error: [ErrKeyUnknown] where another process may know better, so that an agent's
	// step waits for one that does; any other is final for a step that has not begun.
	Decode(at Place, stored []byte) ([]byte, error)
}

// What [AES256GCM] says of a payload that it does not open, by errors.Is.
var (
	// ErrKeyUnknown: it is encrypted with a key that is not given here.
	ErrKeyUnknown = errors.New("encrypted with a key that is not known here")
	// ErrNotAuthentic: it was changed, is of another task or step, or its key id names another key.
	ErrNotAuthentic = errors.New("it does not open: changed, of another task or step, or another key of the same id")
	// ErrNotEncrypted: it is no encrypted payload. See [AES256GCM.AcceptPlain].
	ErrNotEncrypted = errors.New("not encrypted")
)

// CodecOption is what [WithCodec] makes.
type CodecOption struct{ codec Codec }

func (o CodecOption) forClient(c *Client)     { c.codec = o.codec }
func (o CodecOption) forAgent(c *agentConfig) { c.codec = o.codec }

// WithCodec has inputs and results encoded before they leave this process, and decoded when they come: the engine, its
// journal and its database hold what codec makes. A [Client] encodes what it submits, and decodes what [Client.Get] shows;
// an [Agent] decodes what its handlers get and encodes what they answer. Every client and agent of a plan needs it.
//
// Ids, types, labels, names of steps, times and the texts of errors are not encoded: write no secrets into them.
func WithCodec(codec Codec) CodecOption { return CodecOption{codec} }

// KeyBytes is the size of a key.
const KeyBytes = 32

// Bounds of a file of keys.
const (
	keysMax         = 64
	keyFileBytesMax = 64 << 10
)

// Key is a key of [AES256GCM] with its id, which stands beside every payload: 1 to 64 of A–Z a–z 0–9 _ -.
type Key struct {
	ID     string
	Secret []byte // KeyBytes of random
}

// AES256GCM is a [Codec] that encrypts with AES-256 in Galois/Counter mode, under a key for each place that is derived of
// the key by HKDF-SHA-256. So a payload opens at its place alone: not as another task's, nor as another step's. Its nonce
// is made of key, place and payload: who sees two payloads of one place sees whether they are equal, and nothing else.
type AES256GCM struct {
	write string
	keys  map[string][]byte
	plain bool
}

// NewAES256GCM makes a codec. The first key encrypts, all of them decrypt: to change keys, give the new one as a further
// key everywhere, then as the first everywhere, and drop the old one when no task has it any more. Errors: no key, an id
// that cannot be or comes twice, a key of another size.
func NewAES256GCM(keys ...Key) (*AES256GCM, error) {
	if len(keys) == 0 || len(keys) > keysMax {
		return nil, fmt.Errorf("codec: %d keys, want 1 to %d", len(keys), keysMax)
	}
	c := &AES256GCM{write: keys[0].ID, keys: map[string][]byte{}}
	for _, k := range keys {
		if err := core.CheckName("key id", k.ID); err != nil {
			return nil, fmt.Errorf("codec: %w", err)
		}
		if len(k.Secret) != KeyBytes {
			return nil, fmt.Errorf("codec: key %s has %d bytes, want %d", k.ID, len(k.Secret), KeyBytes)
		}
		if c.keys[k.ID] != nil {
			return nil, fmt.Errorf("codec: key %s is given twice", k.ID)
		}
		c.keys[k.ID] = bytes.Clone(k.Secret)
	}
	return c, nil
}

// LoadKeys reads the keys of [NewAES256GCM] from a file: a line for each, its id and, after a space, its 32 bytes in
// base64; empty lines and those that begin with # are passed over. Error: a line that is no key, by its number and without
// its content.
func LoadKeys(file string) ([]Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	defer f.Close()
	var keys []Key
	lines := bufio.NewScanner(io.LimitReader(f, keyFileBytesMax))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, secret, _ := strings.Cut(line, " ")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(secret))
		if err != nil || len(key) != KeyBytes || core.CheckName("key id", id) != nil {
			return nil, fmt.Errorf("keys: %s: line %d is no key: want an id, a space, and %d bytes in base64", file, n, KeyBytes)
		}
		keys = append(keys, Key{ID: id, Secret: key})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("keys: %s: %w", file, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys: %s has none", file)
	}
	return keys, nil
}

// openable refuses what a plan cannot do with a codec that binds a payload to its place and hides all of it: the engine hands
// the input of a task to its children, and asks expressions, without opening anything.
func openable(codec Codec, p *core.Plan) error {
	if _, bound := codec.(*AES256GCM); !bound {
		return nil
	}
	const instead = "use call steps, or a client without the codec"
	if readsPayloads.MatchString(p.Result) {
		return fmt.Errorf("%w: plan %s: its result %.60q reads what AES256GCM encrypts; %s", core.ErrPlan, p.Name, p.Result, instead)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Parent() {
			return fmt.Errorf("%w: plan %s: step %s: it has children of type %s, which cannot open their input: AES256GCM binds a payload to its task; %s",
				core.ErrPlan, p.Name, s.Name, s.Child, instead)
		}
		for _, text := range []string{s.When, s.Input, s.Until} {
			if readsPayloads.MatchString(text) {
				return fmt.Errorf("%w: plan %s: step %s: its expression %.60q reads what AES256GCM encrypts; %s", core.ErrPlan, p.Name, s.Name, text, instead)
			}
		}
	}
	return nil
}

// readsPayloads finds the names of payloads in an expression.
var readsPayloads = regexp.MustCompile(`\b(input|results)\b`)

// AcceptPlain returns a codec that also takes payloads that are not encrypted as they are, for the time in which tasks of
// before are under way. Who can write to NATS or the database can give such a codec payloads of their own making.
func (c *AES256GCM) AcceptPlain() *AES256GCM {
	with := *c
	with.plain = true
	return &with
}

// Encode implements [Codec]. Error: a payload that is encrypted already.
func (c *AES256GCM) Encode(at Place, payload []byte) ([]byte, error) {
	if _, is := seal.Of(payload); is {
		return nil, fmt.Errorf("%s: it is encrypted already", at)
	}
	aead, mac, err := c.at(c.write, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	_, _ = mac.Write(payload) // a hash takes everything
	nonce := mac.Sum(nil)[:aead.NonceSize()]
	e := seal.Envelope{Form: seal.A256GCM, Key: c.write, Data: aead.Seal(nonce, nonce, payload, associated(c.write, at))}
	return e.Append(nil)
}

// Decode implements [Codec]. Errors: [ErrKeyUnknown], [ErrNotAuthentic], [ErrNotEncrypted].
func (c *AES256GCM) Decode(at Place, stored []byte) ([]byte, error) {
	e, is := seal.Of(stored)
	switch {
	case !is && c.plain:
		return stored, nil
	case !is:
		return nil, fmt.Errorf("%s: %w", at, ErrNotEncrypted)
	case e.Form != seal.A256GCM:
		return nil, fmt.Errorf("%s: form %s, want %s: %w", at, core.QuoteShort(e.Form), seal.A256GCM, ErrKeyUnknown)
	case c.keys[e.Key] == nil:
		return nil, fmt.Errorf("%s: key %s: %w", at, core.QuoteShort(e.Key), ErrKeyUnknown)
	}
	aead, _, err := c.at(e.Key, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	n := aead.NonceSize()
	if len(e.Data) < n {
		return nil, fmt.Errorf("%s: key %s: %w", at, e.Key, ErrNotAuthentic)
	}
	payload, err := aead.Open(nil, e.Data[:n], e.Data[n:], associated(e.Key, at))
	if err != nil {
		return nil, fmt.Errorf("%s: key %s: %w", at, e.Key, ErrNotAuthentic)
	}
	return payload, nil
}

// at are the cipher of a place and what makes its nonces.
func (c *AES256GCM) at(key string, at Place) (cipher.AEAD, interface {
	io.Writer
	Sum(b []byte) []byte
}, error) {
	derived, err := hkdf.Key(sha256.New, c.keys[key], nil, string(associated(key, at)), 2*KeyBytes)
	if err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(derived[:KeyBytes])
	if err != nil {
		return nil, nil, err
	}
	aead, err := cipher.NewGCM(block)
	return aead, hmac.New(sha256.New, derived[KeyBytes:]), err
}

// associated are key and place without a way to read them as others.
func associated(key string, at Place) []byte {
	return fmt.Appendf(nil, "%s %d:%s %d:%s %d:%s %d:%s", seal.A256GCM, len(key), key, len(at.Type), at.Type, len(at.Task), at.Task, len(at.Step), at.Step)
}
