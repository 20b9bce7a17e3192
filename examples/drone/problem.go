package drone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// problem is an error body in the form of RFC 9457.
type problem struct {
	Title      string       `json:"title"`
	Status     int          `json:"status"`
	Detail     string       `json:"detail,omitempty"`
	DeliveryID string       `json:"deliveryId,omitempty"`
	Errors     []FieldError `json:"errors,omitempty"`
}

func (p *problem) write(w http.ResponseWriter) {
	p.Title = http.StatusText(p.Status)
	if p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// An error here is a client that went away.
	_ = json.NewEncoder(w).Encode(p)
}

// DoorError is a door's refusal, with a code in the sense of HTTP.
type DoorError struct {
	Code int
	Text string
}

// Error gives text and code.
func (e *DoorError) Error() string { return e.Text + " (" + strconv.Itoa(e.Code) + ")" }

// problemOf maps an error to the reference's codes: 400 for bad input, 500 when
// the broker refuses, 504 when it does not answer; and to 404, 409, 413 and 429,
// which the reference has no case for.
func problemOf(err error) *problem {
	var invalid *InvalidError
	var refused *DoorError
	switch {
	case errors.As(err, &invalid):
		return &problem{Status: http.StatusBadRequest, Detail: err.Error(), Errors: invalid.Fields}
	case errors.Is(err, ErrNoTask):
		return &problem{Status: http.StatusNotFound, Detail: err.Error()}
	case errors.As(err, &refused) && refused.Code >= 400 && refused.Code < 500 && refused.Code != http.StatusRequestTimeout:
		return &problem{Status: refused.Code, Detail: err.Error()}
	case errors.As(err, &refused) && refused.Code == http.StatusRequestTimeout, errors.Is(err, context.DeadlineExceeded):
		return &problem{Status: http.StatusGatewayTimeout, Detail: "no answer in time; it may be stored all the same: try again with the same deliveryId"}
	}
	return &problem{Status: http.StatusInternalServerError, Detail: err.Error()}
}

func badField(status int, field, value, limit string) *problem {
	e := FieldError{Field: field, Value: quoteShort(value), Limit: limit}
	return &problem{Status: status, Detail: e.Error(), Errors: []FieldError{e}}
}

// badBody explains a body that could not be read.
func badBody(err error) *problem {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return badField(http.StatusRequestEntityTooLarge, "body", "larger", fmt.Sprintf("at most %d bytes", large.Limit))
	}
	return &problem{Status: http.StatusBadRequest, Detail: "body: " + err.Error()}
}

// badJSON explains a body that does not decode, by field where it can.
func badJSON(err error) *problem {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return badField(http.StatusBadRequest, mistyped.Field, "JSON "+mistyped.Value, "a JSON "+jsonKind(mistyped.Type.Kind().String()))
	}
	return badField(http.StatusBadRequest, "body", err.Error(), "a delivery request as one JSON object")
}

func jsonKind(kind string) string {
	switch kind {
	case "struct":
		return "object"
	case "float64":
		return "number"
	case "bool":
		return "boolean"
	}
	return kind
}
