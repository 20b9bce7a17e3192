package alerts

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/egress"
)

// The headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

// cloudEvent is the body of a webhook: CloudEvents 1.0, structured mode, of ten members at most.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            string    `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Severity        string    `json:"severity,omitempty"` // an extension
	Data            eventData `json:"data"`
}

// eventData is what the event is about.
type eventData struct {
	Name     string            `json:"name"`
	Key      string            `json:"key,omitempty"`
	Node     string            `json:"node"`
	Phase    string            `json:"phase"`
	Severity string            `json:"severity"`
	Text     string            `json:"text"`
	Error    string            `json:"error,omitempty"`
	Since    string            `json:"since,omitempty"`
	LastsMS  int64             `json:"lasts_ms,omitempty"`
	Times    int               `json:"times,omitempty"`
	More     map[string]string `json:"more,omitempty"`
}

const (
	cloudEventType  = "application/cloudevents+json; charset=utf-8"
	eventTypePrefix = "dev.duly.alert." // + name
)

// encodeEvent is the CloudEvent of an alert.
func encodeEvent(a *core.Alert, namespace string) ([]byte, error) {
	v := viewOf(a, namespace)
	e := cloudEvent{SpecVersion: "1.0", ID: a.ID, Source: "/duly/" + namespace, Type: eventTypePrefix + a.Name, Subject: a.Key, Time: v.At.Format(time.RFC3339Nano),
		DataContentType: "application/json", Severity: v.Severity,
		Data: eventData{Name: v.Name, Key: v.Key, Node: v.Node, Phase: v.Phase, Severity: v.Severity, Text: v.Text, Error: v.Error, LastsMS: a.LastsMS, Times: v.Times, More: v.More}}
	if !v.Since.IsZero() {
		e.Data.Since = v.Since.Format(time.RFC3339Nano)
	}
	return json.Marshal(e)
}

// sign is the value of the header webhook-signature: of each key one signature by HMAC-SHA256 of id, timestamp (seconds
// since the Unix epoch) and body, joined by dots.
func sign(keys [][]byte, id string, at time.Time, body []byte) string {
	var all []string
	for _, key := range keys {
		h := hmac.New(sha256.New, key)
		fmt.Fprintf(h, "%s.%d.%s", id, at.Unix(), body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// finalError is a failure that another try does not change.
type finalError struct{ error }

// Unwrap gives the failure itself.
func (e finalError) Unwrap() error { return e.error }

// laterError is a failure with the receiver's wish when to come again.
type laterError struct {
	error
	after time.Duration
}

// Unwrap gives the failure itself.
func (e laterError) Unwrap() error { return e.error }

// sameHost refuses for good a redirect to another host, or one that would lose the body.
func sameHost(next *http.Request, via []*http.Request) error {
	if err := egress.SameOrigin(next, via); err != nil {
		return finalError{err}
	}
	return nil
}

// answerMax is how much of an answer is read.
const answerMax = 8 << 10

// post sends one alert to a webhook once.
func (s *Sender) post(ctx context.Context, c *Channel, secret string, a *core.Alert) (err error) {
	address, keys := c.URL, [][]byte(nil)
	if strings.Contains(address, secretInURL) {
		address = strings.ReplaceAll(address, secretInURL, url.PathEscape(secret))
	} else if keys, err = signingKeys(secret); err != nil {
		return finalError{err}
	}
	contentType := cloudEventType
	var body []byte
	if c.templates.body != nil {
		contentType = "application/json"
		if body, err = render(c.templates.body, viewOf(a, s.cfg.Namespace)); err == nil && !json.Valid(body) {
			err = errors.New("body: the template does not make JSON of this alert")
		}
	} else {
		body, err = encodeEvent(a, s.cfg.Namespace)
	}
	if err != nil {
		return finalError{err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return finalError{errors.New("url: the address is not one")}
	}
	now := time.Now()
	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "duly")
	req.Header.Set(headerID, a.ID)
	req.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	if len(keys) > 0 {
		req.Header.Set(headerSignature, sign(keys, a.ID, now, body))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, answerMax) // so that the connection can be used again
	return judge(resp)
}

// withoutURL is an error of the client without the address, which may hold the secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// judge says what an answer means.
func judge(resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	err := fmt.Errorf("the receiver answers %s", resp.Status)
	switch {
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= 500:
		if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && seconds > 0 {
			return laterError{err, min(time.Duration(seconds)*time.Second, backoffMost)}
		}
		return err
	}
	return finalError{err}
}
