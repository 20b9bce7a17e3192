package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"duly.dev/duly/ingest"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/live"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/planform"
	"duly.dev/duly/internal/say"
)

type (
	plansJSON struct {
		Plans []planJSON `json:"plans"`
	}
	// planJSON is a stored version of a plan.
	planJSON struct {
		planform.Plan
		Deprecated *time.Time `json:"deprecated_at,omitempty" doc:"since when the version takes no submission"`
	}
	// PlanIn is a version of a plan in a path.
	PlanIn struct {
		Name    string `path:"name" maxLength:"64"`
		Version int64  `path:"version" minimum:"1"`
	}
	deprecateIn struct {
		PlanIn
		Body struct {
			Undo   bool   `json:"undo,omitempty" doc:"the version is deprecated no more"`
			Called bool   `json:"even_if_called,omitempty" doc:"also where it is the last, and steps of other plans, whose children are of it, fail then"`
			Reason string `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
	deprecateJSON struct {
		Name       string `json:"name"`
		Version    int64  `json:"version"`
		Deprecated bool   `json:"deprecated"`
		Newest     int64  `json:"newest" doc:"version that a submission takes when it names none; 0: none is left"`
	}
	agentsJSON struct {
		Agents []operate.Agent `json:"agents"`
	}
	// InsistIn is of a change that names something.
	InsistIn struct {
		EvenIfUnknown bool `json:"even_if_unknown,omitempty" doc:"do it although nobody knows the name"`
	}
	breakerIn struct {
		Agent string `path:"agent" maxLength:"259"`
		Body  struct {
			State  operate.BreakerWish `json:"state" enum:"open,closed,auto" doc:"open: nothing begins there; closed: its calls go on, whatever they come to; auto: it decides by itself again"`
			Until  *time.Time          `json:"until,omitempty" doc:"it decides by itself again then; absent: when it is let go"`
			Reason string              `json:"reason" minLength:"1" maxLength:"1000"`
			InsistIn
		}
	}
	partitionsJSON struct {
		Partitions []operate.Partition `json:"partitions"`
	}
	// PartitionIn is a partition in a path.
	PartitionIn struct {
		Partition int `path:"partition" minimum:"0" maximum:"1023"`
	}
	pinIn struct {
		PartitionIn
		Body struct {
			Node   string `json:"node" minLength:"1" maxLength:"64"`
			Reason string `json:"reason" minLength:"1" maxLength:"1000"`
			InsistIn
		}
	}
	lossIn struct {
		Stream string `path:"stream" maxLength:"128"`
		Body   struct {
			Reason string `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
	lossAnswer struct {
		Stream   string `json:"stream"`
		Messages uint64 `json:"messages" doc:"that it lacks, and whose alert ends"`
	}
	reasonIn struct {
		PartitionIn
		Body struct {
			Reason string `json:"reason" minLength:"1" maxLength:"1000"`
		}
	}
	pausesJSON struct {
		Pauses []operate.PauseView `json:"pauses"`
	}
	pauseIn struct {
		KeyIn
		Body struct {
			Type   string     `json:"type,omitempty" maxLength:"64"`
			Step   string     `json:"step,omitempty" maxLength:"64" doc:"with type only"`
			Agent  string     `json:"agent,omitempty" maxLength:"259"`
			Label  string     `json:"label,omitempty" maxLength:"129" doc:"key=value"`
			Until  *time.Time `json:"until,omitempty" doc:"it lifts itself then"`
			Reason string     `json:"reason" minLength:"1" maxLength:"1000"`
			InsistIn
		}
	}
	liftIn struct {
		ID     string `path:"pause" maxLength:"128"`
		Reason string `query:"reason" maxLength:"1000"`
	}
	// Aged is how old what is shown live is, and why.
	Aged struct {
		AgeMS   int64  `json:"age_ms" doc:"how long ago that was read, by the clock of the node"`
		Trouble string `json:"trouble,omitempty" doc:"why there is nothing newer"`
	}
	// overviewJSON is the first screen.
	overviewJSON struct {
		operate.Overview
		Aged
	}
	countsJSON struct {
		Counts []countJSON `json:"counts"`
		Aged
	}
	statsJSON struct {
		Samples []operate.Sample `json:"samples" doc:"of the last ten minutes in which something was shown live, the oldest first; the newest at least"`
		Trouble string           `json:"trouble,omitempty"`
	}
)

// aged is how old what was read last is.
func (a *api) aged(s *live.Snapshot) Aged {
	return Aged{max(0, a.cfg.Now().Sub(s.Overview.At).Milliseconds()), s.Trouble}
}

// engineRoutes are what runs the tasks.
func (a *api) engineRoutes() {
	const tag = "engine"
	whole(a, route{method: "GET", path: "/v1/plans", id: "listPlans", tag: tag, needs: operate.RoleViewer, summary: "Plans, by name and version"},
		func(rows []planJSON) plansJSON { return plansJSON{rows} }, a.plans)
	register(a, route{method: "GET", path: "/v1/plans/{name}/{version}", id: "getPlan", tag: tag, needs: operate.RoleViewer, summary: "One version of a plan"},
		func(ctx context.Context, in *PlanIn) (out planJSON, err error) {
			all, err := a.plans(ctx)
			if err != nil {
				return out, err
			}
			for i := range all {
				if all[i].Name == in.Name && all[i].Version == in.Version {
					return all[i], nil
				}
			}
			return out, ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.no-version", "name", core.QuoteShort(in.Name), "version", in.Version))
		})
	a.versionRoutes()
	whole(a, route{method: "GET", path: "/v1/agents", id: "listAgents", tag: tag, needs: operate.RoleViewer, summary: "Agents: who is there, their breakers, and what waits"},
		func(rows []operate.Agent) agentsJSON { return agentsJSON{rows} },
		func(ctx context.Context) ([]operate.Agent, error) { return a.ports.Agents.Agents(ctx) })
	a.breakerRoute(tag)
	whole(a, route{method: "GET", path: "/v1/partitions", id: "listPartitions", tag: tag, needs: operate.RoleViewer, summary: "Partitions: owner, epoch, lag"},
		func(rows []operate.Partition) partitionsJSON { return partitionsJSON{rows} },
		func(ctx context.Context) ([]operate.Partition, error) { return a.ports.Partitions.Partitions(ctx) })
	changing(a, route{method: http.MethodPost, path: "/v1/partitions/{partition}/pin", id: "pinPartition", tag: tag, needs: operate.RoleAdmin, summary: "Keep a partition at a node while that lives"},
		func(ctx context.Context, in *pinIn) error {
			if err := core.CheckName("node", in.Body.Node); err != nil {
				return ingest.Refuse(400, ingest.CauseBody, "field %v", err)
			}
			return a.movePartition(ctx, in.Partition, in.Body.Reason, func(by operate.Actor) error {
				return a.ports.Partitions.Pin(ctx, by, in.Partition, in.Body.Node, in.Body.Reason, in.Body.EvenIfUnknown)
			})
		})
	changing(a, route{method: http.MethodPost, path: "/v1/partitions/{partition}/unpin", id: "unpinPartition", tag: tag, needs: operate.RoleAdmin, summary: "Let a partition go where it belongs"},
		func(ctx context.Context, in *reasonIn) error {
			return a.movePartition(ctx, in.Partition, in.Body.Reason, func(by operate.Actor) error {
				return a.ports.Partitions.Unpin(ctx, by, in.Partition, in.Body.Reason)
			})
		})
	changing(a, route{method: http.MethodPost, path: "/v1/partitions/{partition}/step-down", id: "stepDownPartition", tag: tag, needs: operate.RoleAdmin, summary: "Ask the owner of a partition to hand it over"},
		func(ctx context.Context, in *reasonIn) error {
			return a.movePartition(ctx, in.Partition, in.Body.Reason, func(by operate.Actor) error {
				return a.ports.Partitions.StepDown(ctx, by, in.Partition, in.Body.Reason)
			})
		})
	register(a, route{method: http.MethodPost, path: "/v1/streams/{stream}/accept-loss", id: "acceptLoss", tag: tag, needs: operate.RoleOperator, summary: "Note that an operator knows of messages that a stream lacks", about: "The alert about them ends."},
		func(ctx context.Context, in *lossIn) (out lossAnswer, err error) {
			if bad := checkID("stream", in.Stream); bad != nil {
				return out, bad
			}
			if bad := operate.CheckReason(in.Body.Reason); bad != nil {
				return out, bad
			}
			out.Stream = in.Stream
			err = a.ports.Desk.Change(ctx, &operate.Act{Action: "stream.accept_loss", Target: "stream/" + in.Stream, Reason: in.Body.Reason, Away: true}, func(ctx context.Context) (err error) {
				if out.Messages, err = a.ports.AcceptLoss(ctx, in.Stream); errors.Is(err, core.ErrNotFound) {
					return &operate.Refusal{Code: 404, Detail: "no stream " + core.QuoteShort(in.Stream)}
				}
				return err
			})
			return out, err
		})
	a.pauseRoutes()
	a.limitRoutes()
	a.forecastRoute(tag)
	register(a, route{method: "GET", path: "/v1/overview", id: "getOverview", tag: tag, needs: operate.RoleViewer, summary: "What needs an operator", about: "All who ask share one reader."},
		func(ctx context.Context, _ *struct{}) (overviewJSON, error) {
			now, err := a.ports.Live.Current(ctx)
			return overviewJSON{now.Overview, a.aged(&now)}, err
		})
	register(a, route{method: "GET", path: "/v1/counts", id: "countTasks", tag: "tasks", needs: operate.RoleViewer,
		summary: "How many tasks are in which state", about: "Exact while a state has 10,000 tasks or fewer. Of a state with more, every type has a row that says at_least. They are those of the overview."},
		func(ctx context.Context, _ *struct{}) (out countsJSON, err error) {
			now, err := a.ports.Live.Current(ctx)
			out = countsJSON{Counts: make([]countJSON, len(now.Counts)), Aged: a.aged(&now)}
			for i, c := range now.Counts {
				out.Counts[i] = countJSON(c)
			}
			return out, err
		})
	register(a, route{method: "GET", path: "/v1/stats", id: "getStats", tag: tag, needs: operate.RoleViewer, summary: "Samples for plots", about: "Totals, of which the reader takes differences."},
		func(ctx context.Context, _ *struct{}) (statsJSON, error) {
			now, err := a.ports.Live.Current(ctx)
			return statsJSON{some(a.ports.Live.Samples()), now.Trouble}, err
		})
}

// plans are all plans, in one order.
func (a *api) plans(ctx context.Context) ([]planJSON, error) {
	stored, err := a.storedPlans(ctx)
	if err != nil {
		return nil, err
	}
	deprecated, err := a.ports.Versions.Deprecated(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]planJSON, len(stored))
	for i := range stored {
		data, err := planform.Encode(&stored[i])
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &all[i].Plan); err != nil {
			return nil, err
		}
		if at := deprecated.Since(stored[i].Name, stored[i].Version); at != 0 {
			since := at.Time()
			all[i].Deprecated = &since
		}
	}
	slices.SortFunc(all, func(x, y planJSON) int {
		if x.Name != y.Name {
			return strings.Compare(x.Name, y.Name)
		}
		return int(max(-1, min(x.Version-y.Version, 1)))
	})
	return all, nil
}

// movePartition asks for a change of who owns a partition. The port writes the audit trail.
func (a *api) movePartition(ctx context.Context, partition int, reason string, do func(operate.Actor) error) error {
	if partition >= a.cfg.Partitions {
		return ingest.Refuse(404, ingest.CauseNotFound, "%s", say.Of("refuse.no-partition", "partition", partition, "n", a.cfg.Partitions))
	}
	if bad := operate.CheckReason(reason); bad != nil {
		return bad
	}
	return do(by(ctx))
}

// breakerRoute is how the breaker of an agent is forced.
func (a *api) breakerRoute(tag string) {
	register(a, route{method: http.MethodPut, path: "/v1/agents/{agent}/breaker", id: "forceBreaker", tag: tag, needs: operate.RoleOperator, summary: "Open or close the breaker of an agent, or let it go",
		about: "While it is open nothing begins there: tasks park and spend no attempt, and one that cannot wait so long is undone at once."},
		func(ctx context.Context, in *breakerIn) (out operate.Breaker, err error) {
			f := operate.ForceBreaker{Agent: in.Agent, State: in.Body.State, Reason: in.Body.Reason, EvenIfUnknown: in.Body.EvenIfUnknown}
			if in.Body.Until != nil {
				f.Until = in.Body.Until.UTC()
			}
			if bad := f.Check(a.cfg.Now()); bad != nil {
				return out, bad
			}
			return a.ports.Breakers.Force(ctx, by(ctx), f)
		})
}

// pauseRoutes are what holds commands back.
func (a *api) pauseRoutes() {
	const tag = "engine"
	whole(a, route{method: "GET", path: "/v1/pauses", id: "listPauses", tag: tag, needs: operate.RoleViewer, summary: "Pauses"},
		func(rows []operate.PauseView) pausesJSON { return pausesJSON{rows} },
		func(ctx context.Context) ([]operate.PauseView, error) { return a.ports.Pauses.Pauses(ctx) })
	register(a, route{method: http.MethodPost, path: "/v1/pauses", id: "setPause", tag: tag, needs: operate.RoleOperator, status: 201,
		summary: "Hold new commands back", about: "What is absent matches everything: without type, agent and label all commands wait. Tasks still end by their deadline."},
		func(ctx context.Context, in *pauseIn) (operate.Pause, error) {
			p, bad := in.pause(a.cfg.Now())
			if bad != nil {
				return p, bad
			}
			return a.ports.Pauses.SetPause(ctx, by(ctx), p)
		})
	changing(a, route{method: http.MethodDelete, path: "/v1/pauses/{pause}", id: "liftPause", tag: tag, needs: operate.RoleOperator, summary: "Let commands go again"},
		func(ctx context.Context, in *liftIn) error {
			if bad := checkID("pause", in.ID); bad != nil {
				return bad
			}
			if bad := operate.CheckReason(in.Reason); bad != nil {
				return bad
			}
			return a.ports.Pauses.LiftPause(ctx, by(ctx), in.ID, in.Reason)
		})
}

// pause checks what is to be held back.
func (in *pauseIn) pause(now time.Time) (operate.Pause, *operate.Refusal) {
	b := &in.Body
	p := operate.Pause{ID: nuid.Next(), Type: b.Type, Step: b.Step, Agent: b.Agent, Label: b.Label, At: now.UTC(), Reason: b.Reason, EvenIfUnknown: b.EvenIfUnknown, Key: in.Key}
	if b.Until != nil {
		p.Until = b.Until.UTC()
	}
	return p, operate.CheckPause(&p, now)
}
