package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrUndecodable is wrapped by every error about a message as a whole. In a stream such a
// message becomes a dead letter, and reading goes on after it.
var ErrUndecodable = errors.New("message cannot be decoded")

// APIError is an error in an answer, in the form of JetStream's.
type APIError struct {
	Code        int    `json:"code"` // as in HTTP
	ErrCode     int    `json:"err_code,omitempty"`
	Description string `json:"description"`
}

// Error is the description and the code.
func (e *APIError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// RefusedError is the answer to a request that was refused.
type RefusedError struct {
	APIError
	Task  string        // its id, where the request has one
	Retry time.Duration // when to try again; 0: no hint
}

// Retryable reports whether the same submission can succeed later.
func (e *RefusedError) Retryable() bool { return e.Code == 429 || e.Code >= 500 }

// decodeOf reads the JSON of a message, of which v is to be our version then. Errors wrap ErrUndecodable and begin with what
// it is.
func decodeOf(what string, data []byte, into any, v *int) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUndecodable, what, err)
	}
	if *v != Version {
		return fmt.Errorf("%w: %s: v is %d, want %d", ErrUndecodable, what, *v, Version)
	}
	return nil
}
