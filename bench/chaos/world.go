package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/freeport"
	"duly.dev/duly/internal/localpg"
	"duly.dev/duly/schema"
	"duly.dev/duly/schema/dialects"
)

// partitions of every system here.
const partitions = 16

// servicesScale is that of the mock services' latencies.
const servicesScale = 0.2

// servicesFaults are the mock services' own: enough to undo and try again all the
// time, few enough that a probe mostly measures the system.
var servicesFaults = drone.Faults{Refused: 0.02, Transient: 0.03, TimedOut: 0.0005, Silent: 0.0005}

// world is one system under test and everything around it.
type world struct {
	dir      string
	stage    *stage
	programs *programs
	out      io.Writer
	rate     int
	over     *over // nil: the rate was given
	seed     uint64

	services *drone.Services
	desk     *desk
	load     *load
	work     *work // nil: deliveries alone
	watch    *watch
	logs     *logs
	told     map[string]core.State // ends that an event stream told which was then lost
	outage   outage
	gauge    gauge
	plants   int       // failures that were planted
	turns    uint64    // pauses that were set: each kind of pause has its turn
	mended   *mended   // of the report
	receiver *receiver // of alerts; nil: there was no need of one

	opening sync.Mutex
	opened  schema.Store // the harness's own, by a link that nothing breaks
	skew    atomic.Int64 // ends that were counted and are not in a database that went back

	nats      []*process
	natsHosts []string // by no proxy
	natsURL   string   // of the harness, by no proxy
	natsConf  *natsConf
	pg        *localpg.Cluster
	pgs       []*localpg.Cluster // all that there were
	database  string             // by no proxy
	dbLink    *link              // the harness's own
	goneBack  bool               // the database went back, and its ends were not counted since
	names     []string
	roles     map[string]*process
	agents    []*process
	natsLinks []*namedLink
	dbLinks   []*namedLink

	probed                    time.Duration // how long the last probes took
	natsDisk, dbDisk, devDisk *volume
	diskWhy                   error // why there are none
}

// namedLink is a link and whose it is.
type namedLink struct {
	*link
	name string
}

func (w *world) role(name string) *process { return w.roles[name] }

func (w *world) schedulers() []*process {
	return []*process{w.roles["scheduler-a"], w.roles["scheduler-b"]}
}

func (w *world) supervisors() []*process {
	return []*process{w.roles["supervisor-a"], w.roles["supervisor-b"]}
}

func (w *world) everyRole() []*process {
	var list []*process
	for _, name := range w.names {
		list = append(list, w.roles[name])
	}
	return list
}

// open starts everything and stores the plan.
func (w *world) open(ctx context.Context) error {
	w.roles = map[string]*process{}
	var err error
	if w.services, err = drone.NewServices(drone.ServiceOptions{Seed: w.seed, Scale: servicesScale, Faults: servicesFaults, LateMax: 2 * callGrace}); err != nil {
		return err
	}
	if w.desk, err = openDesk(w.socket(), &Desk{w.services, &w.outage, &w.gauge}); err != nil {
		return err
	}
	if w.stage.work != "" {
		if w.work, err = openWork(w.stage.work, w.workSocket(), w.seed); err != nil {
			return err
		}
	}
	if w.stage.topology == devOnly {
		err = w.openDev(ctx)
	} else {
		err = w.openServers(ctx)
	}
	if err != nil {
		return err
	}
	if err := w.openStore(ctx); err != nil {
		return err
	}
	if err := w.openAgents(); err != nil {
		return err
	}
	if w.load, err = newLoad(w.natsURL, w.seed, w.over.within()); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	if w.work != nil {
		if err := errors.Join(w.openWorkAgents(), w.work.example.Apply(bounded, w.load.clients[0])); err != nil {
			return err
		}
	}
	if err := errors.Join(w.load.flow.Plan.Apply(bounded, w.load.clients[0]), w.load.mend.Apply(bounded, w.load.clients[0]), w.load.bound.Apply(bounded, w.load.clients[0])); err != nil {
		return err
	}
	for _, p := range w.everyRole() {
		if err := w.awaitReady(ctx, p); err != nil {
			return err
		}
	}
	w.watch = newWatch(w.everyRole())
	return nil
}

// openStore opens the harness's own store, again where there was one.
func (w *world) openStore(ctx context.Context) error {
	url := w.database
	if w.dbLink != nil {
		at, err := addrOf(url)
		if err != nil {
			return err
		}
		url = strings.Replace(url, at, w.dbLink.addr(), 1)
	}
	w.opening.Lock()
	defer w.opening.Unlock()
	var err error
	w.opened, err = dialects.Open(ctx, url, schema.Options{MaxConns: 4, Timeout: 5 * time.Minute})
	return err
}

// closeStore closes it.
func (w *world) closeStore() error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.opened == nil {
		return nil
	}
	err := w.opened.Close()
	w.opened = nil
	return err
}

// errNoStore: the database is away because its files are exchanged.
var errNoStore = errors.New("the database is being exchanged")

// store is the harness's own.
func (w *world) store() (schema.Store, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.opened == nil {
		return nil, errNoStore
	}
	return w.opened, nil
}

func (w *world) socket() string { return filepath.Join(w.dir, "services.sock") }

// disk makes a volume; writers are the processes that write to it, for where the
// machine does not let us mount one.
func (w *world) disk(name string, writers func() ([]int, error)) (*volume, string, error) {
	dir := filepath.Join(w.dir, name)
	v, err := mount(dir)
	if err != nil {
		w.diskWhy = err
		return &volume{dir: dir, writers: writers}, dir, os.MkdirAll(dir, 0o755)
	}
	return v, dir, nil
}

// disks says in words what fills up.
func (w *world) disks() string {
	if w.diskWhy != nil {
		return fmt.Sprintf("a full disk is a limit on the size of files, %d byte (%v)", fileBytes, w.diskWhy)
	}
	if w.stage.topology == cluster {
		return "no disk is filled"
	}
	return "disks are tmpfs, in a mount namespace of their own, made as small as what is used"
}

// openDev starts `duly dev` on SQLite.
func (w *world) openDev(ctx context.Context) error {
	var dir string
	var err error
	if w.devDisk, dir, err = w.disk("data", func() ([]int, error) { return w.role("dev").pids(), nil }); err != nil {
		return err
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return err
	}
	p, err := w.newProcess("dev", httpReady(ports[0]), w.programs.newer, "dev", "--data-dir", dir, "--port", fmt.Sprint(ports[0]), "--nats-port", fmt.Sprint(ports[1]))
	if err != nil {
		return err
	}
	w.addRole(p)
	w.natsHosts = []string{fmt.Sprintf("127.0.0.1:%d", ports[1])}
	w.natsURL, w.database = as(userLoad, w.natsHosts...), "sqlite:"+filepath.Join(dir, "duly.db")
	if err := p.start(); err != nil {
		return err
	}
	return w.awaitReady(ctx, p)
}

// openRole starts one process of `duly serve`, behind links of its own.
func (w *world) openRole(name string) error {
	ports, err := freeport.Find(1)
	if err != nil {
		return err
	}
	natsURL, err := w.natsBehindLink(name, userDuly)
	if err != nil {
		return err
	}
	at, err := addrOf(w.database)
	if err != nil {
		return err
	}
	k, err := newLink(at)
	if err != nil {
		return err
	}
	w.dbLinks = append(w.dbLinks, &namedLink{k, name})
	role, _, _ := strings.Cut(name, "-")
	replicas := len(w.nats)
	p, err := w.newProcess(name, httpReady(ports[0]), w.programs.newer, "serve", "--roles", role, "--node-name", name,
		"--nats-url", natsURL, "--database-url", strings.Replace(w.database, at, k.addr(), 1),
		"--http-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--partitions", fmt.Sprint(partitions),
		"--lease", leaseTime.String(), "--scan-interval", "250ms", "--drain", "2s",
		"--stream-replicas", fmt.Sprint(replicas), "--stream-max-age", "24h", "--stream-max-bytes", fmt.Sprint(4<<30), "--sync-always")
	if err != nil {
		return err
	}
	w.addRole(p)
	return p.start()
}

func (w *world) addRole(p *process) {
	w.roles[p.name] = p
	w.names = append(w.names, p.name)
}

// natsBehindLink is how a process reaches NATS: through a link, or straight where
// the servers tell their clients of each other.
func (w *world) natsBehindLink(name, user string) (string, error) {
	if w.stage.topology == cluster {
		return as(user, w.natsHosts...), nil
	}
	k, err := newLink(w.natsHosts[0])
	if err != nil {
		return "", err
	}
	w.natsLinks = append(w.natsLinks, &namedLink{k, name})
	return as(user, k.addr()), nil
}

// openAgents starts two processes of agents that share the work.
func (w *world) openAgents() error {
	for _, name := range []string{"agents-a", "agents-b"} {
		url, err := w.natsBehindLink(name, userAgents)
		if err != nil {
			return err
		}
		p, err := w.newPart(name, partAgents, agentsPart{NATSURL: url, Desk: w.socket()})
		if err != nil {
			return err
		}
		w.agents = append(w.agents, p)
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// newPart is a process of this program itself.
func (w *world) newPart(name, part string, settings any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w.newProcess(name, "", self, part, string(text))
}

func (w *world) newProcess(name, ready string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &process{name: name, args: args, ready: ready, log: log}, nil
}

// close ends everything, the load first.
func (w *world) close() error {
	var errs []error
	if w.work != nil {
		errs = append(errs, w.work.close())
	}
	if w.load != nil {
		errs = append(errs, w.load.close())
	}
	if w.watch != nil {
		w.watch.close()
	}
	for _, p := range append(append(w.everyRole(), w.agents...), w.nats...) {
		errs = append(errs, p.close())
	}
	for _, k := range append(append([]*namedLink{}, w.natsLinks...), w.dbLinks...) {
		errs = append(errs, k.close())
	}
	errs = append(errs, w.closeStore())
	if w.dbLink != nil {
		errs = append(errs, w.dbLink.close())
	}
	for _, pg := range w.pgs {
		errs = append(errs, pg.Stop()) // a second time does nothing
	}
	if w.desk != nil {
		errs = append(errs, w.desk.close())
	}
	if w.receiver != nil {
		errs = append(errs, w.receiver.close())
	}
	for _, v := range []*volume{w.natsDisk, w.dbDisk, w.devDisk} {
		errs = append(errs, v.close())
	}
	return errors.Join(errs...)
}

func httpReady(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/readyz", port) }
