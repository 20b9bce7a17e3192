package kvledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What a record says of its key.
const (
	stateWorking = "working" // a do has begun
	stateDone    = "done"
	stateUndoing = "undoing" // a tombstone whose work has not succeeded
	stateUndone  = "undone"
)

// record is the value of a key.
type record struct {
	State  string `json:"state"`
	Owner  string `json:"owner"`              // of the claim that wrote it: no two have the same
	Lease  int64  `json:"lease_ms,omitempty"` // how long from its writing the claim holds; 0: none does
	Known  bool   `json:"known,omitempty"`    // of a tombstone: the do succeeded, with result
	Result []byte `json:"result,omitempty"`
	Why    string `json:"why,omitempty"` // what a do said of which it is not known whether it took effect

	written time.Time // by the server's clock
}

func (r record) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // there is nothing in it that could not be encoded
	}
	return data
}

// held holds while the claim of a record does.
func (r record) held(now time.Time, skew time.Duration) bool {
	return r.Lease > 0 && now.Before(r.written.Add(time.Duration(r.Lease)*time.Millisecond+skew))
}

// get reads a key; one that is not there is the zero record at revision 0.
func (l *Ledger) get(ctx context.Context, key string) (record, uint64, error) {
	entry, err := l.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record{}, 0, nil
	}
	if err != nil {
		return record{}, 0, err
	}
	var r record
	if err := json.Unmarshal(entry.Value(), &r); err != nil {
		return record{}, 0, fmt.Errorf("revision %d is not a ledger's: %w", entry.Revision(), err)
	}
	switch r.State {
	case stateDone:
		r.Known = true
	case stateWorking, stateUndoing, stateUndone:
	default:
		return record{}, 0, fmt.Errorf("revision %d is not a ledger's: state %q", entry.Revision(), r.State)
	}
	r.written = entry.Created()
	return r, entry.Revision(), nil
}

// put writes a key that is still at a revision; 0: that is not there.
func (l *Ledger) put(ctx context.Context, key string, r record, revision uint64) (uint64, error) {
	if revision == 0 {
		return l.kv.Create(ctx, key, r.encode())
	}
	return l.kv.Update(ctx, key, r.encode(), revision)
}

// codeStoreFailed is JetStream's error of a stream that has no room, among other reasons.
const codeStoreFailed jetstream.ErrorCode = 10077

// full holds for the error of a bucket that has no room.
func full(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeStoreFailed && strings.Contains(api.Description, "maximum")
}

// changed holds for the error of a key that is not at the revision it was to be at.
func changed(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// encodeKey is a key as a bucket takes it: what it does not take, and what would make more than one token of it, is =XX.
func encodeKey(key string) (string, error) {
	if key == "" || len(key) > KeyMax {
		return "", fmt.Errorf("%d bytes of key, want 1 to %d", len(key), KeyMax)
	}
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '/', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String(), nil
}

// Bucket says how a bucket of ledgers is made.
type Bucket struct {
	Name string // 1 or more of A–Z a–z 0–9 _ -
	// Keep is how long a key is kept after its last change: the longest deadline of the tasks, the grace of their plans, and
	// how long their undos are tried (a day, unless the plan says), at least. A do whose tombstone is gone takes effect again.
	Keep time.Duration
	// BytesMax is the most that all keys may take; 0: no bound but Keep. A full bucket refuses new keys with code 429. A result
	// that finds no room is as if its process had died before the record, so leave some.
	BytesMax int64
	Replicas int // 0: 1
}

// Create makes a bucket, or changes it to what b says. Its stream is on disk and keeps one revision of each key. Errors: Keep
// is less than KeepLeast, and what NATS refuses.
func Create(ctx context.Context, js jetstream.JetStream, b Bucket) (jetstream.KeyValue, error) {
	if b.Keep < KeepLeast {
		return nil, fmt.Errorf("ledger: bucket %s: Keep: %v, want %v or more", b.Name, b.Keep, KeepLeast)
	}
	if b.BytesMax < 0 {
		return nil, fmt.Errorf("ledger: bucket %s: BytesMax: %d, want 0 or more", b.Name, b.BytesMax)
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: b.Name, Description: "what became of the keys of an agent of Duly", History: 1,
		TTL: b.Keep, MaxBytes: b.BytesMax, Replicas: b.Replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("ledger: bucket %s: %w", b.Name, err)
	}
	return kv, nil
}
