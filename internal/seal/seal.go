// Package seal knows the form of an encrypted payload, and holds no key: who shows payloads tells one that is encrypted
// by it.
package seal

import (
	"bytes"
	"encoding/json"
)

// member is the member of a JSON object by which an encrypted payload is known.
const member = "duly.enc"

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
	if !bytes.Contains(payload, []byte(member)) { // nearly always; a quote, of which JSON is full, would be searched slowly
		return e, false
	}
	var members map[string]json.RawMessage // the library takes "KEY" for a member "key"; others do not
	if err := json.Unmarshal(payload, &members); err != nil || len(members) != 3 || members[member] == nil || members["key"] == nil || members["data"] == nil {
		return e, false
	}
	if err := json.Unmarshal(payload, &e); err != nil || e.Form == "" || e.Key == "" || len(e.Data) == 0 {
		return Envelope{}, false
	}
	return e, true
}

// Append appends the envelope as JSON.
func (e *Envelope) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(e)
	return append(b, data...), err
}
