package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/egress"
)

// Bounds of an export.
const (
	exportMax    = 10 * time.Second // for one batch of spans, with its tries
	exportTries  = 4
	exportFirst  = 200 * time.Millisecond // before the second try; each later one waits longer
	exportSpread = 3 * time.Second
	exportAnswer = 4 << 10 // bytes of an answer that are read
)

// OTLP makes an exporter to a collector by OTLP over HTTP: http://host:4318 or https://…. The library's own client over
// HTTP links gRPC and its gateway for one message, which makes the binary larger by a tenth: this one sends the same
// bytes, because the message that a collector takes has the one field that TracesData has.
func OTLP(ctx context.Context, endpoint string) (Exporter, error) {
	u, err := checkOTLP(endpoint)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = otlpPath
	}
	headers, err := otlpHeaders(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")))
	if err != nil {
		return nil, err
	}
	e, err := otlptrace.New(ctx, &otlpClient{to: u.String(), headers: headers, http: &http.Client{Timeout: exportMax, CheckRedirect: egress.SameOrigin, Transport: http.DefaultTransport.(*http.Transport).Clone()}})
	if err != nil {
		return nil, fmt.Errorf("otlp-endpoint: %w", err)
	}
	return e, nil
}

// otlpPath is where collectors take traces, unless the address says another path.
const otlpPath = "/v1/traces"

// checkOTLP reads the address of a collector.
func checkOTLP(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return nil, errors.New("otlp-endpoint: want http://host:4318 or https://…, without user and password")
	}
	return u, nil
}

// otlpHeaders reads the headers that collectors ask for, as OpenTelemetry has them: key=value, joined by commas, values
// percent-encoded. The error does not repeat them: they are secrets.
func otlpHeaders(text string) (http.Header, error) {
	h := http.Header{}
	for i, one := range strings.Split(text, ",") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		name, value, ok := strings.Cut(one, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: header %d is no key=value", i+1)
		}
		h.Set(name, value)
	}
	return h, nil
}

// otlpClient is otlptrace.Client.
type otlpClient struct {
	to      string
	headers http.Header
	http    *http.Client
}

// Start implements otlptrace.Client.
func (c *otlpClient) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *otlpClient) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. What the collector may take later is sent again a few times. Error: it was not
// taken.
func (c *otlpClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	data, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("spans: %w", err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return fmt.Errorf("spans: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("spans: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, exportMax)
	defer cancel()
	for try := 1; ; try++ {
		later, err := c.post(ctx, packed.Bytes())
		if err == nil || !later || try == exportTries {
			return err
		}
		wait := time.NewTimer(core.Backoff(exportFirst, exportSpread, try, 1))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}

// post sends spans once; later: they may be taken another time.
func (c *otlpClient) post(ctx context.Context, body []byte) (later bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header = c.headers.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "gzip")
	r.Header.Set("User-Agent", "duly")
	resp, err := c.http.Do(r)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, exportAnswer)) // so that the connection can be used again
	switch code := resp.StatusCode; code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("the collector answered %s", resp.Status)
	default:
		if code < 200 || code > 299 {
			return false, fmt.Errorf("the collector answered %s", resp.Status)
		}
	}
	return false, nil
}
