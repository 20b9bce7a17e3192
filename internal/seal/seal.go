// Package seal knows the form of an encrypted payload, and holds no key: who shows payloads tells one that is encrypted
// by it.
package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Member is the member of a JSON object by which an encrypted payload is known.
const Member = "duly.enc"

// A256GCM is the form of the codec that comes with Duly.
const A256GCM = "A256GCM-1"

// Envelope is an encrypted payload: a JSON object of exactly these members.
type Envelope struct {
	Form string `json:"duly.enc"` // how it is encrypted
	Key  string `json:"key"`      // id of the key
	Data []byte `json:"data"`     // nonce, cipher text and tag, in base64
}

// Of reads an encrypted payload; false: it is none.
func Of(payload []byte) (Envelope, bool) {
	var e Envelope
	if !bytes.Contains(payload, []byte(`"`+Member+`"`)) { // nearly always
		return e, false
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil || e.Form == "" || e.Key == "" || len(e.Data) == 0 {
		return Envelope{}, false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Envelope{}, false
	}
	return e, true
}

// Append appends the envelope as JSON.
func (e *Envelope) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(e)
	return append(b, data...), err
}
