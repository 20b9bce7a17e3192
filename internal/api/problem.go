package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// The library is told by its variables how we answer.
func init() {
	huma.DefaultArrayNullable = false // our lists are never null
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := problemOf(refusedBy(status, message, errs))
		return &p
	}
}

// Error implements error.
func (p *problemJSON) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *problemJSON) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problemJSON) ContentType(string) string { return "application/problem+json" }

// refusedBy says in our words what huma found wrong with a request: where, the value, and what was wanted. What cannot
// be understood is 400, as it is where no library looks.
func refusedBy(status int, message string, errs []error) *ingest.Refusal {
	cause := ingest.CauseBody
	switch status {
	case http.StatusUnprocessableEntity:
		status = http.StatusBadRequest
	case http.StatusRequestEntityTooLarge:
		return ingest.Refuse(status, cause, "%s", say.Of("refuse.body-size", "limit", bodyBytesMax))
	case http.StatusInternalServerError, http.StatusRequestTimeout:
		status = http.StatusBadRequest // of a body that ended early
	}
	if len(errs) == 0 {
		return ingest.Refuse(status, cause, "%s", message)
	}
	var words []string
	for _, err := range errs {
		detail, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok {
			words = append(words, err.Error())
			continue
		}
		where, name, _ := strings.Cut(detail.Location, ".")
		if where != "body" {
			cause = ingest.CauseQuery
		}
		switch where {
		case "query":
			where = "query parameter " + name
		case "path", "header":
			where += " " + name
		case "body":
			where = strings.TrimSuffix("field "+name, " ")
			if name == "" {
				where = "the body"
			}
		}
		if _, object := detail.Value.(map[string]any); object || detail.Value == nil {
			words = append(words, where+": "+detail.Message)
		} else {
			words = append(words, fmt.Sprintf("%s is %s: %s", where, core.QuoteShort(fmt.Sprint(detail.Value)), detail.Message))
		}
	}
	return ingest.Refuse(status, cause, "%s", strings.Join(words, "; "))
}

// problemOf is the document of a refusal.
func problemOf(r *ingest.Refusal) problemJSON {
	return problemJSON{
		Type: "about:blank", Title: http.StatusText(r.Code), Status: r.Code, Detail: r.Description,
		ErrCode: r.ErrCode, RetryMS: int64(r.Retry / time.Millisecond),
	}
}

// refusalOf is an operator's refusal as the API answers it.
func refusalOf(bad *operate.Refusal) problemJSON {
	detail := bad.Detail
	if bad.Insist != "" {
		detail = say.Of("refuse.insist", "detail", detail, "field", bad.Insist, "flag", "--"+strings.ReplaceAll(bad.Insist, "_", "-"))
	}
	p := problemOf(ofDoor(bad))
	p.Detail, p.Field, p.Possible = detail, bad.Field, bad.Possible
	return p
}

// ofDoor is an operator's refusal as the doors give theirs.
func ofDoor(bad *operate.Refusal) *ingest.Refusal {
	return ingest.Refuse(bad.Code, cmp.Or(bad.Cause, ingest.CauseOf(bad.Code)), "%s", bad.Detail).After(time.Duration(bad.RetryMS) * time.Millisecond)
}

// WriteRefusal answers a refusal as a problem document, for what stands before the API.
func WriteRefusal(w http.ResponseWriter, _ *http.Request, bad *operate.Refusal) {
	p := refusalOf(bad)
	writeProblem(w, &p)
}

// withHeaders is a problem with its header.
type withHeaders struct{ *problemJSON }

// GetHeaders implements huma.HeadersError.
func (p withHeaders) GetHeaders() http.Header {
	if retry := p.retryAfter(); retry != "" {
		return http.Header{"Retry-After": {retry}}
	}
	return nil
}

// answerOf is what is answered when an operation fails; who asks may be gone.
func (a *api) answerOf(ctx context.Context, what string, err error) error {
	if bad, ok := errors.AsType[*operate.Refusal](err); ok {
		p := refusalOf(bad)
		return withHeaders{&p}
	}
	bad, ok := errors.AsType[*ingest.Refusal](err)
	switch {
	case ok:
	case errors.Is(err, core.ErrNotFound):
		bad = ingest.Refuse(404, ingest.CauseNotFound, "%v", err)
	case errors.Is(err, core.ErrCursor):
		bad = ingest.Refuse(400, ingest.CauseQuery, "%s", say.Of("refuse.after", "error", err))
	case errors.Is(err, operate.ErrFenced):
		bad = ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.operation-moves")).After(ingest.RetryLog)
	default:
		if ctx.Err() == nil {
			a.log.Warn("a request could not be served", "what", what, "request", operate.RequestFrom(ctx), "error", err)
		}
		bad = ingest.Refuse(503, ingest.CauseStore, "%s", say.Of("refuse.store-again")).After(ingest.RetryLog)
	}
	p := problemOf(bad)
	return withHeaders{&p}
}
