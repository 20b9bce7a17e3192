package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/quickjson"
	"duly.dev/duly/internal/say"
	"duly.dev/duly/internal/taskform"
)

// apiVersion is of the API's description. Within it no field is renamed and none is given another meaning.
const apiVersion = "1.0.0"

// The limits of what is asked by operators.
const (
	changeMax     = 10 * time.Second // a change may take
	bodyBytesMax  = 512 << 10        // of a body that is no submission: two inputs, one of them escaped
	bodyReadMax   = 10 * time.Second
	roleExtension = "x-role"   // of an operation: the role that it needs
	openExtension = "x-client" // of an operation: a client may, too
	metaNeeds     = "needs"
	metaClient    = "client"
)

// route is one operation: what the description says of it, and who may.
type route struct {
	method, path string
	id           string // of the operation, for generated clients
	summary      string
	about        string
	tag          string
	needs        operate.Role
	client       bool // a client may, too
	status       int  // of the answer; 0: 200
}

// operation is the route as it is described.
func (r route) operation() huma.Operation {
	needs := fmt.Sprintf("Needs the role %s", r.needs)
	if r.client && r.needs != operate.RoleClient {
		needs += " or client"
	}
	return huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Description: joined(r.about, needs+"."), Tags: []string{r.tag},
		DefaultStatus: r.status, MaxBodyBytes: bodyBytesMax, BodyReadTimeout: bodyReadMax,
		Metadata:   map[string]any{metaNeeds: r.needs, metaClient: r.client},
		Extensions: map[string]any{roleExtension: string(r.needs), openExtension: r.client},
		Security:   []map[string][]string{{"token": {}}},
	}
}

func joined(about, needs string) string {
	if about == "" {
		return needs
	}
	return about + " " + needs
}

// adapter is huma.Adapter on the API's own table of paths, so that an unknown path, method or parameter is refused in
// the same way everywhere.
type adapter struct{ api *api }

// Handle implements huma.Adapter.
func (d adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	d.api.mount(op, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		handler(humago.NewContext(op, r, w))
	})
}

// ServeHTTP implements huma.Adapter.
func (d adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.api.mux.ServeHTTP(w, r) }

// mount serves an operation that is described.
func (a *api) mount(op *huma.Operation, serve http.HandlerFunc) {
	var known []string
	for _, p := range op.Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	if a.paths[op.Path] == nil {
		a.paths[op.Path] = methods{}
		a.mux.Handle(op.Path, a.paths[op.Path])
	}
	if op.RequestBody == nil {
		serve = bodiless(serve, known...)
	}
	a.paths[op.Path][op.Method] = a.gate(op, takes(serve, known...))
}

// gate lets those pass whose role may.
func (a *api) gate(op *huma.Operation, next http.HandlerFunc) http.HandlerFunc {
	needs, _ := op.Metadata[metaNeeds].(operate.Role)
	client, _ := op.Metadata[metaClient].(bool)
	reads := op.Method == http.MethodGet
	return func(w http.ResponseWriter, r *http.Request) {
		actor, ok := operate.ActorFrom(r.Context())
		switch {
		case !ok:
			w.Header().Set("WWW-Authenticate", `Bearer realm="duly"`)
			problem(w, ingest.Refuse(401, ingest.CauseNoActor, "%s", say.Of("refuse.no-token")))
		case actor.Role.May(needs) || client && actor.Role == operate.RoleClient:
			next(w, r)
		default:
			if !reads {
				a.refused(r, op.OperationID, "needs the role "+string(needs))
			}
			problem(w, ingest.Refuse(403, ingest.CauseForbidden, "%s", say.Of("refuse.role", "name", core.QuoteShort(actor.Name), "role", actor.Role, "needs", needs)))
		}
	}
}

// body is an answer with nothing but a body.
type body[O any] struct{ Body O }

// register describes and serves an operation that answers with a body.
func register[I, O any](a *api, r route, serve func(context.Context, *I) (O, error)) {
	bounded(a, r, func(ctx context.Context, in *I) (*body[O], error) {
		out, err := serve(ctx, in)
		return &body[O]{out}, err
	})
}

// changing describes and serves a change that answers with 204 and nothing else.
func changing[I any](a *api, r route, serve func(context.Context, *I) error) {
	r.status = http.StatusNoContent
	bounded(a, r, func(ctx context.Context, in *I) (*struct{}, error) { return nil, serve(ctx, in) })
}

// bounded describes and serves an operation whose work is bounded in time.
func bounded[I, O any](a *api, r route, serve func(context.Context, *I) (*O, error)) {
	most := a.cfg.ReadMax
	if r.method != http.MethodGet {
		most = changeMax
	}
	op := r.operation()
	op.Responses = problems(a.huma.OpenAPI().Components.Schemas, r.method != http.MethodGet)
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		bounded, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		out, err := serve(bounded, in)
		if err != nil {
			return nil, a.answerOf(ctx, r.id, err)
		}
		return out, nil
	})
}

// described describes and serves an operation whose handler reads the request itself. Parameters and bodies are those of
// the input and output types: fields with the tags path, query, header, and Body.
func described[I, O any](a *api, r route, serve http.HandlerFunc, more func(*huma.Operation)) {
	op := r.operation()
	op.Responses = problems(a.huma.OpenAPI().Components.Schemas, r.method != http.MethodGet)
	if more != nil {
		more(&op)
	}
	huma.Register(silent{a.huma, &op}, op, func(context.Context, *I) (*O, error) { return nil, nil })
	a.mount(&op, serve)
}

// silent is huma.API that only describes.
type silent struct {
	huma.API
	op *huma.Operation
}

// Adapter implements huma.API: what is described is served by another handler.
func (s silent) Adapter() huma.Adapter { return nowhere{s.op} }

type nowhere struct{ op *huma.Operation }

// Handle implements huma.Adapter: it keeps the operation with its parameters.
func (n nowhere) Handle(op *huma.Operation, _ func(huma.Context)) { *n.op = *op }

// ServeHTTP implements huma.Adapter.
func (nowhere) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }

// problems is what any operation answers when it refuses, whatever the code: one document for all of them.
func problems(registry huma.Registry, changes bool) map[string]*huma.Response {
	says := "400 what is wrong, by field, value and limit; 401 no token; 403 the role; 404 not there; 429 and 503 come again, with Retry-After"
	if changes {
		says += "; 409 the state forbids it, with what is possible; 413 too large"
	}
	return map[string]*huma.Response{"default": {Description: says, Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: registry.Schema(reflect.TypeFor[problemJSON](), true, "Problem")},
	}}}
}

// newHuma makes what describes the operations.
func (a *api) newHuma() huma.API {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	return huma.NewAPI(huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Duly", Version: apiVersion,
				Description: "Tasks of several steps, each done by its deadline or undone. Errors are problem documents (RFC 9457). What is not known in a request is refused by its name.",
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "the node that serves this document"}},
			Tags:    tags,
			Components: &huma.Components{
				Schemas:         registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", BearerFormat: "duly_…"}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat: "application/json",
	}, adapter{a})
}

// jsonFormat is JSON in UTF-8 in which each name stands once: encoding/json would replace what is not, and take the last of
// two, and say nothing.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, into any) error {
	err := huma.DefaultJSONFormat.Unmarshal(data, into)
	switch {
	case err != nil:
		return err
	case !core.IsText(string(data)):
		return errors.New("it holds bytes that are not UTF-8")
	}
	return quickjson.CheckOnce("it", data)
}}

var tags = []*huma.Tag{
	{Name: "tasks", Description: "Submit, read and act on single tasks."},
	{Name: "failures", Description: "Tasks that failed, grouped by step and error."},
	{Name: "operations", Description: "One action over many tasks."},
	{Name: "books", Description: "The journal compared with what the services say, and repairs of what does not agree."},
	{Name: "schedules", Description: "Tasks that are submitted again and again."},
	{Name: "engine", Description: "Plans, agents, partitions, pauses, numbers."},
	{Name: "admin", Description: "Audit trail, tokens, settings."},
}

// schemaName is the name of a type in the description: without the suffix that tells bodies here, and told apart from
// what another package names in the same way.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := schemaNames[t]; ok {
		return name
	}
	name := strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "JSON")
	for suffix, meant := range map[string]string{"InBody": "Request", "OutBody": "Answer"} {
		if before, ok := strings.CutSuffix(name, suffix); ok {
			return before + meant
		}
	}
	return name
}

var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[countJSON](): "TaskCount", reflect.TypeFor[countsJSON](): "TaskCounts", reflect.TypeFor[pageJSON](): "TaskPage", reflect.TypeFor[taskform.Step](): "TaskStep",
	reflect.TypeFor[planform.Step](): "PlanStep", reflect.TypeFor[ViewBody](): "ViewBody", reflect.TypeFor[viewJSONOut](): "View",
}
