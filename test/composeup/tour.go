package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
)

// world is one stack and what is done to it.
type world struct {
	*stack
	*record
	images images
	commit string // before this one
	books  *books

	nc     *nats.Conn
	client *duly.Client
	halt   func() error // ends the agents
}

// How long things may take.
const (
	endMax   = 40 * time.Second // until every task has ended, once all is well
	healMax  = 60 * time.Second // until all is healthy again
	cutFor   = 20 * time.Second
	downFor  = 3 * time.Second  // how long killed servers stay away
	tellMax  = 35 * time.Second // until a node says that it is cut off
	burstLen = 2000
)

// start brings everything up and connects as a user does. false: it is of no use
// to go on.
func (w *world) start(ctx context.Context, what string, images images) bool {
	return w.check(what+": every service is healthy", func() error {
		if err := w.use(images); err != nil {
			return err
		}
		return w.up(ctx)
	}) && w.check("the plan is applied and agents are served from outside, through NATS on loopback", func() error { return w.connect(ctx) })
}

func (w *world) connect(ctx context.Context) error {
	var err error
	if w.nc, err = nats.Connect(w.nats, nats.Name("composeup"), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond)); err != nil {
		return err
	}
	if w.client, err = duly.NewClient(w.nc); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var agents sync.WaitGroup
	ended := make(chan error, 1)
	agents.Go(func() { ended <- w.books.serve(ctx, w.nc) })
	w.halt = func() error {
		stop()
		agents.Wait()
		w.nc.Close()
		return <-ended
	}
	applied, cancel := context.WithTimeout(ctx, endMax)
	defer cancel()
	return plan.Apply(applied, w.client)
}

// end takes everything down; what the containers said goes to a file when
// something failed.
func (w *world) end(ctx context.Context, logs string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if w.failed > 0 {
		if said, err := w.run(ctx, "logs", "--no-color", "--timestamps"); err == nil && os.WriteFile(logs, []byte(said), 0o644) == nil {
			fmt.Println("compose: what the containers said:", logs)
		}
	}
	w.check("everything is taken down", func() error {
		var err error
		if w.halt != nil {
			err = w.halt()
		}
		return errors.Join(err, until(ctx, time.Minute, func() error { return w.down(ctx, true) })) // a busy engine lets containers go late
	})
}

// settled waits until the books can be closed.
func (w *world) settled(ctx context.Context) error {
	return until(ctx, endMax, func() error { return w.books.close(ctx, w.http) })
}

// closeBooks is the check after each trouble.
func (w *world) closeBooks(ctx context.Context, after string) {
	w.check("books closed after "+after, func() error {
		if err := w.settled(ctx); err != nil {
			return err
		}
		w.books.mu.Lock()
		defer w.books.mu.Unlock()
		fmt.Printf("         %d tasks accepted so far\n", len(w.books.accepted))
		return nil
	})
}

// tour is the day of a single installation.
func (w *world) tour(ctx context.Context) {
	if !w.start(ctx, "up", w.images) {
		return
	}
	w.check("ports are published on loopback only", func() error { return w.loopback(ctx) })
	w.check("nothing warned while all started together", func() error { return w.calm(ctx, "door", "ingest", "scheduler", "supervisor", "drone") })
	w.doors(ctx)
	w.check(fmt.Sprintf("a burst of %d", burstLen), func() error { return w.books.burst(ctx, w.client, "burst", burstLen) })
	w.closeBooks(ctx, "the burst")
	w.stopped(ctx)
	w.killed(ctx)
	w.restarted(ctx)
	w.scaled(ctx)
	w.cut(ctx, "bus", "NATS")
	w.cut(ctx, "store", "the database")
}

// doors are the ways in: HTTP as the README has it, NATS, and the drone's page.
func (w *world) doors(ctx context.Context) {
	w.check("the README's curl lines", func() error { return w.readme(ctx) })
	w.check("a delivery through NATS from outside", func() error {
		bounded, cancel := context.WithTimeout(ctx, acceptMax)
		defer cancel()
		if _, err := w.client.SubmitRaw(bounded, "delivery", "d-nats", []byte(delivery("d-nats"))); err != nil {
			return err
		}
		return w.delivered(ctx, w.http+"/v1/tasks/delivery/d-nats")
	})
	w.check("the drone page's POST and GET", func() error {
		if err := w.posted(ctx); err != nil {
			return err
		}
		return w.delivered(ctx, w.drone+"/api/deliveryrequests/d-page")
	})
}

func delivery(id string) string {
	return fmt.Sprintf(`{"deliveryId":%q,"ownerId":"o-1","pickupLocation":"A","dropOffLocation":"B","packageInfo":{"packageId":"p-1","size":"Small","weight":1}}`, id)
}

func (w *world) posted(ctx context.Context) error {
	status, err := call(ctx, http.MethodPost, w.drone+"/api/deliveryrequests", "application/json", delivery("d-page"), nil)
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("the page answers %d, want %d", status, http.StatusAccepted)
	}
	return err
}

// delivered waits until a delivery has been made.
func (w *world) delivered(ctx context.Context, url string) error {
	return until(ctx, endMax, func() error {
		var t task
		if _, err := call(ctx, http.MethodGet, url, "", "", &t); err != nil {
			return err
		}
		if t.State != "processed" {
			return fmt.Errorf("%s is %s: %s", url, t.State, t.Reason)
		}
		return nil
	})
}

// The README's lines, as far as they have a part in the meaning.
var (
	curlLine = regexp.MustCompile(`(?m)^curl (?:-i )?(?:-X (\S+) )?(localhost:(\d+)/\S+)(?: -H 'Content-Type: ([^']+)')?(?: -d '([^']*)')?$`)
	curlAll  = regexp.MustCompile(`(?m)^curl `)
	curlSays = "the README's section on containers"
)

// readme does what the README's curl lines do, against the ports of this stack.
func (w *world) readme(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(w.root, "README.md"))
	if err != nil {
		return err
	}
	lines := curlLine.FindAllStringSubmatch(string(text), -1)
	if all := len(curlAll.FindAllString(string(text), -1)); len(lines) < 2 || len(lines) != all {
		return fmt.Errorf("%s: %d of %d curl lines can be read, want all, and 2 or more", curlSays, len(lines), all)
	}
	var reads []string // what says how a delivery went
	for _, line := range lines {
		method, where, port, kind, body := line[1], line[2], line[3], line[4], line[5]
		if kind == "" && body != "" {
			kind = "application/x-www-form-urlencoded" // as curl has it
		}
		base, ok := map[string]string{"7310": w.http, "8080": w.drone}[port]
		if !ok {
			return fmt.Errorf("%s: no port %s is published", curlSays, port)
		}
		if method == "" {
			method = http.MethodGet
			if body != "" {
				method = http.MethodPost
			}
		}
		url := base + strings.TrimPrefix(where, "localhost:"+port)
		if err := until(ctx, endMax, func() error {
			_, err := call(ctx, method, url, kind, body, nil)
			return err
		}); err != nil {
			return fmt.Errorf("%s: %w", curlSays, err)
		}
		if method == http.MethodGet && !strings.HasSuffix(url, "/readyz") {
			reads = append(reads, url)
		}
	}
	if len(reads) < 2 {
		return fmt.Errorf("%s reads %d deliveries, want one from Duly and one from the page", curlSays, len(reads))
	}
	for _, url := range reads {
		if err := w.delivered(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

// docker runs the engine's own command.
func docker(ctx context.Context, args ...string) error {
	_, err := command{}.run(ctx, "docker", args...)
	return err
}

// stopped stops one scheduler as an operator does, under load.
func (w *world) stopped(ctx context.Context) {
	w.check("one scheduler stopped, and started again, under load", func() error {
		ids, err := w.ids(ctx, "scheduler")
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "stop", func(ctx context.Context) error {
			if err := docker(ctx, "stop", "--time", "30", ids[0]); err != nil {
				return err
			}
			pause(ctx, 5*time.Second)
			return docker(ctx, "start", ids[0])
		})
	})
	w.closeBooks(ctx, "the stop of a scheduler")
}

// killed kills the database and NATS, both at a time.
func (w *world) killed(ctx context.Context) {
	w.check("database and NATS killed under load, and back", func() error {
		ids, err := w.ids(ctx, "nats", w.database())
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "kill", func(ctx context.Context) error {
			if err := docker(ctx, append([]string{"kill", "--signal", "KILL"}, ids...)...); err != nil {
				return err
			}
			pause(ctx, downFor)
			if err := docker(ctx, append([]string{"start"}, ids...)...); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the kill of database and NATS")
}

// restarted takes everything down, and up again with its volumes.
func (w *world) restarted(ctx context.Context) {
	w.check("down, and up with the volumes kept: every service is healthy", func() error {
		if err := w.down(ctx, false); err != nil {
			return err
		}
		return w.up(ctx)
	})
	w.check("what was there before is there, and new work is done", func() error {
		if err := w.delivered(ctx, w.drone+"/api/deliveryrequests/d-page"); err != nil {
			return err
		}
		return w.books.burst(ctx, w.client, "again", 100)
	})
	w.closeBooks(ctx, "down and up")
}

// scaled has more of the roles than compose.yaml says.
func (w *world) scaled(ctx context.Context) {
	w.check("ingest scaled to 2 and scheduler to 3: every service is healthy", func() error {
		w.scale = []string{"--scale", "ingest=2", "--scale", "scheduler=3"}
		return w.up(ctx)
	})
	w.check("each node has a name of its own", func() error {
		return errors.Join(w.named(ctx, 2, "ingest"), w.named(ctx, 3, "scheduler"))
	})
	w.check("nothing warned since the start", func() error { return w.calm(ctx, "door", "ingest", "scheduler", "supervisor", "drone") })
	w.check("work is done by all of them", func() error { return w.books.burst(ctx, w.client, "scaled", 300) })
	w.closeBooks(ctx, "scaling")
}

// cut takes one scheduler off a network for a while, under load.
func (w *world) cut(ctx context.Context, network, from string) {
	w.check(fmt.Sprintf("a scheduler cut off from %s for %v under load, which it tells", from, cutFor), func() error {
		ids, err := w.ids(ctx, "scheduler")
		if err != nil {
			return err
		}
		victim := ids[len(ids)-1]
		return w.books.load(ctx, w.client, "cut-"+network, func(ctx context.Context) error {
			if err := docker(ctx, "network", "disconnect", w.network(network), victim); err != nil {
				return err
			}
			over := time.Now().Add(cutFor)
			told := until(ctx, tellMax, func() error {
				if docker(ctx, "exec", victim, "/duly", "health") == nil {
					return errors.New("the scheduler says that it is ready")
				}
				return nil
			})
			pause(ctx, time.Until(over))
			if err := errors.Join(told, docker(ctx, "network", "connect", w.network(network), victim)); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the cut from "+from)
}

// cluster is three NATS servers with three copies of each stream, and three databases.
func (w *world) cluster(ctx context.Context) {
	if !w.start(ctx, "up", w.images) {
		return
	}
	w.check("ports are published on loopback only", func() error { return w.loopback(ctx) })
	w.check("the task stream has three copies", func() error {
		for _, replica := range []string{"nats-1", "nats-2", "nats-3"} {
			out, err := w.run(ctx, "exec", "-T", replica, "wget", "-qO-", "http://localhost:8222/jsz?streams=true&config=true")
			if err != nil {
				return err
			}
			if !strings.Contains(out, `"num_replicas": 3`) {
				return fmt.Errorf("%s holds no stream with three copies", replica)
			}
		}
		return nil
	})
	w.check("a server killed under load, and back", func() error {
		ids, err := w.ids(ctx, "nats-3")
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "server", func(ctx context.Context) error {
			if err := docker(ctx, "kill", "--signal", "KILL", ids[0]); err != nil {
				return err
			}
			pause(ctx, 2*downFor)
			if err := docker(ctx, "start", ids[0]); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the kill of a server")
	if w.profile == "postgres-cluster" {
		w.promoted(ctx)
	} else {
		w.nodeLost(ctx)
	}
}

// promoted takes the primary's machine away, which says nothing to those connected to it, and lets the standby that has
// more take its place: a commit was answered when one of them had it.
func (w *world) promoted(ctx context.Context) {
	primary := ""
	sql := func(ctx context.Context, server, query string) (string, error) {
		out, err := w.run(ctx, "exec", "-T", server, "psql", "-U", "root", "-d", "defaultdb", "-tAc", query)
		return strings.TrimSpace(out), err
	}
	w.check("the primary of the database lost under load, and a standby promoted", func() error {
		ids, err := w.ids(ctx, "postgres-1")
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "primary", func(ctx context.Context) error {
			if err := docker(ctx, "network", "disconnect", w.network("store"), ids[0]); err != nil {
				return err
			}
			if err := docker(ctx, "kill", "--signal", "KILL", ids[0]); err != nil {
				return err
			}
			w.lost = map[string]bool{"postgres-1": true}
			pause(ctx, downFor)
			most := int64(-1)
			for _, standby := range []string{"postgres-2", "postgres-3"} {
				out, err := sql(ctx, standby, "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'")
				if err != nil {
					return err
				}
				has, err := strconv.ParseInt(out, 10, 64)
				if err != nil {
					return fmt.Errorf("what %s has: %w", standby, err)
				}
				if has > most {
					most, primary = has, standby
				}
			}
			if _, err := sql(ctx, primary, "SELECT pg_promote()"); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the loss of the primary")
	w.check("the other standby follows the promoted one", func() error {
		return until(ctx, healMax, func() error {
			out, err := sql(ctx, primary, "SELECT state, sync_state FROM pg_stat_replication")
			if err == nil && out != "streaming|quorum" {
				err = fmt.Errorf("pg_stat_replication has %q, want one that streams", out)
			}
			return err
		})
	})
}

// nodeLost kills one of three nodes of CockroachDB, and brings it back.
func (w *world) nodeLost(ctx context.Context) {
	w.check("a node of the database killed under load, and back", func() error {
		ids, err := w.ids(ctx, "crdb-3")
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "crdb", func(ctx context.Context) error {
			if err := docker(ctx, "kill", "--signal", "KILL", ids[0]); err != nil {
				return err
			}
			pause(ctx, 2*downFor)
			if err := docker(ctx, "start", ids[0]); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the kill of a node of the database")
}

// single is everything in one container, killed once.
func (w *world) single(ctx context.Context) {
	if !w.start(ctx, "up", w.images) {
		return
	}
	w.check("ports are published on loopback only", func() error { return w.loopback(ctx) })
	w.doors(ctx)
	w.check("the container killed under load, and back", func() error {
		ids, err := w.ids(ctx, "single")
		if err != nil {
			return err
		}
		return w.books.load(ctx, w.client, "single", func(ctx context.Context) error {
			if err := docker(ctx, "kill", "--signal", "KILL", ids[0]); err != nil {
				return err
			}
			pause(ctx, downFor)
			if err := docker(ctx, "start", ids[0]); err != nil {
				return err
			}
			return until(ctx, healMax, func() error { return w.healthy(ctx) })
		})
	})
	w.closeBooks(ctx, "the kill of the container")
	w.restarted(ctx)
}

// upgrade starts with the image of the commit before, and goes over to this one's
// while there is work.
func (w *world) upgrade(ctx context.Context) {
	before := w.images
	before.duly = w.images.before
	if !w.start(ctx, "up with the image of "+w.commit, before) {
		return
	}
	w.check("upgraded to this commit's image under load", func() error {
		return w.books.load(ctx, w.client, "upgrade", func(ctx context.Context) error {
			if err := w.use(w.images); err != nil {
				return err
			}
			return w.up(ctx)
		})
	})
	w.check("every container has the new image", func() error {
		all, err := w.ids(ctx)
		if err != nil {
			return err
		}
		out, err := command{}.run(ctx, "docker", append([]string{"inspect", "--format", "{{.Config.Image}}"}, all...)...)
		if err != nil {
			return err
		}
		if slices.Contains(strings.Fields(out), w.images.before) {
			return errors.New("a container has the old one")
		}
		return nil
	})
	w.doors(ctx)
	w.closeBooks(ctx, "the upgrade")
}
