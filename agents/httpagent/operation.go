package httpagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"

	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/expr"
	"duly.dev/duly/internal/quickjson"
)

// verdict is what a status means.
type verdict uint8

const (
	again verdict = iota // tried again; of a probe: it says nothing
	done
	final
	absent     // of a probe
	inProgress // of a probe
)

// statusMax bounds statuses.
const statusMax = 600

// form is what the body of an answer is.
type form uint8

const (
	formJSON form = iota
	formText
	formNone // not read
)

// Sizes of what is read of an answer that is not used.
const (
	errorBodyMax = 512     // for the text of an error
	drainMax     = 4 << 10 // so that the connection can be used again
	retryMost    = time.Hour
)

// operation is a request that does, undoes or probes a step.
type operation struct {
	where       string // in errors, as "step charge: do"
	undo        bool
	effects     bool // a do whose step has an undo
	service     *service
	method      string
	path        *template
	headers     []header
	body        *expr.Expression // nil: none
	contentType string
	idempotency string // header; empty: none
	timeout     time.Duration
	verdicts    [statusMax]verdict
	answer      form
	saysAnswer  bool             // the file does
	result      *expr.Expression // nil: the body
	outcome     *expr.Expression // of a probe; nil: the status says it
}

// header is one of a request.
type header struct {
	name  string
	value *template
}

// request is what the expressions of an operation made of a command.
type request struct {
	url    string
	path   string // for errors: without the query
	header http.Header
	body   []byte
}

// prepare makes the request. What it refuses would be refused again.
func (o *operation) prepare(v *values) (*request, error) {
	path, err := o.path.render(v.get, urlBytesMax, inURL)
	if err == nil {
		err = checkPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: path: %w", o.where, err)
	}
	r := &request{url: o.service.base.String() + path, header: make(http.Header, len(o.headers)+len(o.service.headers)+4)}
	if _, err := url.Parse(r.url); err != nil {
		return nil, fmt.Errorf("%s: path: it makes no URL: %w", o.where, withoutURL(err))
	}
	short, _, _ := strings.Cut(path, "?")
	r.path = o.service.base.Host + o.service.base.Path + core.ShortText(short, 200)
	for _, h := range o.service.headers {
		r.header.Set(h[0], h[1])
	}
	r.header.Set("User-Agent", "duly")
	if o.answer == formJSON {
		r.header.Set("Accept", "application/json")
	}
	if v.cmd.Trace != "" {
		r.header.Set("Traceparent", v.cmd.Trace)
	}
	if o.idempotency != "" {
		key := v.cmd.Key()
		if o.undo {
			key += "/undo"
		}
		r.header.Set(o.idempotency, key)
	}
	if o.body != nil {
		if r.body, err = o.render(v); err != nil {
			return nil, fmt.Errorf("%s: body: %w", o.where, err)
		}
		r.header.Set("Content-Type", o.contentType)
	}
	for _, h := range o.headers {
		text, err := h.value.render(v.get, headerValueMax, inHeader)
		if err != nil {
			return nil, fmt.Errorf("%s: header %s: %w", o.where, h.name, err)
		}
		r.header.Set(h.name, text)
	}
	return r, nil
}

// Content types that say how a body is written; with any other it is text as it is.
const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
)

// isJSON reports whether a content type is one of JSON.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == typeJSON || strings.HasSuffix(kind, "+json")
}

// render makes the body.
func (o *operation) render(v *values) ([]byte, error) {
	value, err := o.body.Eval(v.get)
	if err != nil {
		return nil, err
	}
	if isJSON(o.contentType) {
		return value.JSON(core.InputBytesMax)
	}
	if o.contentType == typeForm {
		return formOf(value)
	}
	text, ok := value.Text()
	if !ok {
		return nil, fmt.Errorf("it gives %s, want text for the content type %s", value.Describe(), o.contentType)
	}
	return []byte(text), nil
}

// perform carries a command out. The error has the code of the reply.
func (o *operation) perform(ctx context.Context, cmd *core.Command, use func(*values) ([]byte, error)) ([]byte, error) {
	v := &values{cmd: cmd}
	r, err := o.prepare(v)
	if err != nil {
		if o.undo { // an undo that is given up is work for a person, and a corrected file may be on its way
			return nil, err
		}
		return nil, agents.Refuse(http.StatusBadRequest, err)
	}
	tries := 0
	var unclear *failure // of a try before: it may have had an effect
	var panicked any     // the limits do not give a place back that a panic goes through
	result, err := o.service.run.WithContext(ctx).GetWithExecution(func(failsafe.Execution[[]byte]) (_ []byte, err error) {
		defer func() {
			if panicked = recover(); panicked != nil {
				err = fmt.Errorf("panic: %v", panicked)
			}
		}()
		result, bad := o.try(ctx, r, v, use)
		if bad == nil {
			return result, nil
		}
		tries++
		o.judge(ctx, bad, tries)
		if unclear != nil && (bad.code == core.CodeTooEarly || o.effects && core.FinalCode(bad.code)) {
			bad.code, bad.err = unclear.code, unclear.err
		}
		if !bad.harmless {
			unclear = bad
		}
		return nil, bad
	})
	if panicked != nil {
		panic(panicked)
	}
	if err != nil {
		return nil, o.service.refusal(err)
	}
	return result, nil
}

// judge says whether another try follows, and when.
func (o *operation) judge(ctx context.Context, bad *failure, tries int) {
	l := &o.service.limits
	bad.pause = max(bad.after, core.Backoff(l.backoff, l.backoffCap, tries, rand.Float64()))
	left, bounded := timeLeft(ctx)
	bad.again = !bad.final() && ctx.Err() == nil && (!bounded || bad.pause < left) // otherwise it is sent now, while a reply is still read
}

// try makes the request once, and uses its answer.
func (o *operation) try(ctx context.Context, r *request, v *values, use func(*values) ([]byte, error)) ([]byte, *failure) {
	if o.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		ctx = bounded
	}
	var sent atomic.Bool // something may have been
	ctx = context.WithValue(ctx, keyHeader{}, http.CanonicalHeaderKey(o.idempotency))
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	req, err := http.NewRequestWithContext(traced, o.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return nil, o.failed(r, http.StatusBadRequest, true, withoutURL(err))
	}
	req.Header = r.header.Clone()
	resp, err := o.service.client.Do(req)
	if err != nil {
		code := http.StatusBadGateway
		switch {
		case errors.Is(err, ErrAddress):
			code = core.CodeUnavailable
		case errors.Is(err, context.DeadlineExceeded):
			code = http.StatusGatewayTimeout
		}
		bad := o.failed(r, code, !sent.Load(), withoutURL(err))
		bad.ill = !errors.Is(err, ErrAddress) && !errors.Is(err, context.Canceled)
		return nil, bad
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, header: resp.Header, text: o.answer == formText}
	a.means = o.meaning(a.status)
	if a.means == again || a.means == final {
		return nil, o.refused(r, resp, a.means)
	}
	if err := o.read(resp, a); err != nil {
		code := core.CodeFailed
		if errors.Is(err, errBroke) {
			code = http.StatusBadGateway
		}
		bad := o.failed(r, code, false, fmt.Errorf("it answers %d, and %w", a.status, err))
		bad.ill = !errors.Is(err, context.Canceled)
		return nil, bad
	}
	result, err := use(v.with(a))
	if err != nil {
		return nil, o.failed(r, core.CodeFailed, false, fmt.Errorf("it answers %d, but %w", a.status, err))
	}
	return result, nil
}

// meaning is what a status means.
func (o *operation) meaning(status int) verdict {
	if status < 0 || status >= statusMax {
		return again
	}
	return o.verdicts[status]
}

// refused is a status that is none of success.
func (o *operation) refused(r *request, resp *http.Response, means verdict) *failure {
	status := resp.StatusCode
	code := core.CodeAgentError
	switch {
	case means == final && core.FinalCode(status):
		code = status
	case means == final:
		code = core.CodeRefused
	case status == core.CodeUnable: // it will not learn the method; another attempt may meet another instance
	case status < 400:
		code = http.StatusBadGateway
	case status == core.CodeFailed: // no service says that by a status
	case !core.FinalCode(status) && status < statusMax:
		code = status
	}
	text := ""
	if body, err := io.ReadAll(io.LimitReader(resp.Body, errorBodyMax)); err == nil && len(bytes.TrimSpace(body)) > 0 {
		text = ": " + core.ShortText(strings.Join(strings.Fields(strings.ToValidUTF8(o.service.auth.hide(string(body)), "?")), " "), 200)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, drainMax)
	bad := o.failed(r, code, false, fmt.Errorf("it answers %d%s", status, text))
	bad.ill = status >= 500
	bad.after = retryAfter(resp.Header.Get("Retry-After"))
	return bad
}

// failed is a failure whose text names the request, without the service's secret.
func (o *operation) failed(r *request, code int, harmless bool, err error) *failure {
	text := o.service.auth.hide(fmt.Sprintf("%s: %s %s: %v", o.where, o.method, r.path, err))
	return &failure{code: code, err: &told{text, err}, harmless: harmless}
}

// told is an error with another text.
type told struct {
	text string
	err  error
}

func (t *told) Error() string { return t.text }
func (t *told) Unwrap() error { return t.err }

// errBroke is wrapped by the error about an answer that could not be read to its end: the next may be whole.
var errBroke = errors.New("its body breaks off")

// read reads the body of an answer, no more than its limit.
func (o *operation) read(resp *http.Response, a *answer) error {
	if o.answer == formNone || a.means != done && o.outcome == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, drainMax)
		return nil
	}
	most := o.service.answerMax
	if resp.ContentLength > int64(most) {
		return fmt.Errorf("its body has %d bytes, answer_max is %d", resp.ContentLength, most)
	}
	var err error
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, int64(most)+1)); err != nil {
		return fmt.Errorf("%w: %w", errBroke, err)
	}
	if len(a.body) > most {
		return fmt.Errorf("its body has more than %d bytes, which is answer_max", most)
	}
	a.body = bytes.TrimSpace(a.body)
	if o.answer != formJSON || len(a.body) == 0 {
		return nil
	}
	if err := quickjson.Check("its body", a.body); err != nil {
		return fmt.Errorf("%w: %s", err, core.QuoteShort(core.CutText(strings.ToValidUTF8(string(a.body), "?"), 100)))
	}
	return nil
}

// resultOf makes the result of an answer.
func (o *operation) resultOf(v *values) ([]byte, error) {
	if o.result == nil {
		if a := v.answer; !a.text {
			return a.body, nil
		}
		return quoted(v.answer.body)
	}
	value, err := o.result.Eval(v.get)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	data, err := value.JSON(core.ResultBytesMax)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return data, nil
}

// withoutURL is an error of net/http without the address, whose query may be long and no one else's business.
func withoutURL(err error) error {
	if of, is := errors.AsType[*url.Error](err); is {
		return of.Err
	}
	return err
}

// retryAfter reads when a service wants to be asked again; 0: it does not say.
func retryAfter(text string) time.Duration {
	if text == "" {
		return 0
	}
	d := time.Duration(0)
	if seconds, err := strconv.Atoi(text); err == nil {
		d = time.Duration(min(max(seconds, 0), int(retryMost/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = time.Until(at)
	}
	return min(max(d, 0), retryMost)
}
