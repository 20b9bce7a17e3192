package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/wire"
)

// guarded is a connection to a new server with all streams, which are looked at.
func guarded(t *testing.T, c *Conn, config StreamConfig) {
	t.Helper()
	setUp(t, c, config)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Guard(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// trouble is that of one name; nil: none.
func trouble(c *Conn, name string) *Trouble {
	for _, t := range c.Trouble() {
		if t.Name == name {
			return &t
		}
	}
	return nil
}

func awaitTrouble(t *testing.T, c *Conn, name string, want error) Trouble {
	t.Helper()
	var found Trouble
	eventually(t, fmt.Sprintf("trouble %v of %s", want, name), func() bool {
		has := trouble(c, name)
		if has != nil {
			found = *has
		}
		return has != nil && errors.Is(has.Err, want)
	})
	return found
}

func awaitWell(t *testing.T, c *Conn) {
	t.Helper()
	eventually(t, "no trouble", func() bool { return len(c.Trouble()) == 0 })
}

// TestGuardMakesAgain: whichever stream or bucket is lost is told and made again, as
// another one, and nothing else is touched.
//
// covers: A7, B3
func TestGuardMakesAgain(t *testing.T) {
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	// Look by look: one that comes between two losses makes again what the next one would have told.
	setUp(t, c, StreamConfig{Installation: "one", MaxBytes: 1 << 30, Lease: 3 * time.Second})
	c.guardOnce(within(t))
	ids := func() map[string]string {
		all := map[string]string{}
		for _, r := range (StreamConfig{}).resources(wire.Names{}) {
			stream, err := c.js.Stream(within(t), r.want.Name)
			if err != nil {
				t.Fatal(err)
			}
			config := stream.CachedInfo().Config
			if config.Metadata[metaInstallation] != "one" || config.MaxBytes <= 0 {
				t.Errorf("%+v", config)
			}
			all[r.name()] = streamID(stream.CachedInfo())
		}
		return all
	}
	before := ids()
	for _, r := range (StreamConfig{}).resources(wire.Names{}) {
		if err := c.js.DeleteStream(within(t), r.want.Name); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []error{ErrNoStream, errOtherStream} {
		c.guardOnce(within(t))
		for _, r := range (StreamConfig{}).resources(wire.Names{}) {
			if has := trouble(c, r.name()); has == nil || !errors.Is(has.Err, want) || has.Since.IsZero() || time.Since(has.Since) > patience {
				t.Errorf("%s: %+v, want %v", r.name(), has, want)
			}
		}
	}
	c.guardOnce(within(t))
	if all := c.Trouble(); len(all) > 0 {
		t.Errorf("made again, and not well: %+v", all)
	}
	for name, id := range ids() {
		if id == before[name] {
			t.Errorf("%s has the identity of the one that was lost", name)
		}
	}
	publishTasks(t, c, 1)
}

// TestGuardKeepsTheReplyKey: where the bucket of the key is lost, the key goes there again,
// so that what is under way is still answered; a node without one takes it.
//
// covers: A7
func TestGuardKeepsTheReplyKey(t *testing.T) {
	t.Parallel()
	url := serve(t, natsserver.Options{}).ClientURL()
	c, other := dial(t, url), dial(t, url)
	guarded(t, c, StreamConfig{})
	had := *c.signer.Load()
	if err := c.js.DeleteStream(within(t), wire.BucketStream(names.BucketKeys())); err != nil {
		t.Fatal(err)
	}
	awaitTrouble(t, c, names.BucketKeys(), errOtherStream)
	awaitWell(t, c)
	setUp(t, other, StreamConfig{})
	if *c.signer.Load() != had || *other.signer.Load() != had {
		t.Error("there is another key")
	}
	// A key that another node has drawn meanwhile is taken.
	if err := c.js.DeleteStream(within(t), wire.BucketStream(names.BucketKeys())); err != nil {
		t.Fatal(err)
	}
	kv, err := c.js.CreateKeyValue(within(t), jetstream.KeyValueConfig{Bucket: names.BucketKeys()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(within(t), wire.KeyReplies, []byte(strings.Repeat("k", wire.SignerKeyBytes))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other key", func() bool { return *c.signer.Load() != had })
}

// TestLeaseOverALostBucket: a lease goes on in the bucket that is made again.
//
// covers: A7
func TestLeaseOverALostBucket(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{Lease: 5 * time.Second})
	lease, err := c.NewLease(wire.NodeKey("n1"), "", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := lease.Renew(within(t)); !held || err != nil {
		t.Fatal(held, err)
	}
	if err := c.js.DeleteStream(within(t), wire.BucketStream(names.BucketNodes())); err != nil {
		t.Fatal(err)
	}
	if held, err := lease.Renew(within(t)); !held || err == nil {
		t.Errorf("without the bucket: held %v, %v", held, err)
	}
	setUp(t, c, StreamConfig{Lease: 5 * time.Second})
	for range 2 {
		if held, err := lease.Renew(within(t)); !held || err != nil {
			t.Errorf("in the new bucket: held %v, %v", held, err)
		}
	}
}

// TestInstallation: streams of another installation are refused, naming both; a node that
// finds one later tells, and reads nothing.
//
// covers: A8
func TestInstallation(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	setUp(t, c, StreamConfig{}) // without the id of an installation
	id, err := c.Identity(within(t))
	if err != nil {
		t.Fatal(err)
	}
	guarded(t, c, StreamConfig{Installation: "one"})
	if again, err := c.Identity(within(t)); err != nil || again != id {
		t.Errorf("%s, %v, was %s", again, err, id)
	}
	setUp(t, c, StreamConfig{Installation: "one"})
	setUp(t, c, StreamConfig{}) // says nothing about it
	_, err = c.Setup(within(t), StreamConfig{Installation: "two"})
	if !errors.Is(err, ErrInstallation) || !strings.Contains(err.Error(), "it is of one, this one is two") || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("%v", err)
	}
	setUp(t, c, StreamConfig{Installation: "one"})
	s := newSink()
	s.read(t, c, 1, 0, ReadConfig{})
	publishTasks(t, c, 1)
	s.await(t, 1)

	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Metadata[metaInstallation] = "two"
	if _, err := c.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	found := awaitTrouble(t, c, names.StreamTasks(), ErrInstallation)
	if !strings.Contains(found.Err.Error(), "it is of two, this one is one") {
		t.Error(found.Err)
	}
	if _, err := c.Identity(within(t)); !errors.Is(err, ErrInstallation) {
		t.Errorf("%v", err)
	}
	if err := receive(t, "the end of the reader", s.lost); !errors.Is(err, ErrInstallation) {
		t.Errorf("%v", err)
	}
}

// TestGuardSettings: a stream that was changed meanwhile, so that the promise is void.
func TestGuardSettings(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	guarded(t, c, StreamConfig{})
	stream, err := c.js.Stream(within(t), names.StreamControl())
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Discard = jetstream.DiscardOld
	if _, err := c.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	if found := awaitTrouble(t, c, names.StreamControl(), errSettings); !strings.Contains(found.Err.Error(), "discard is DiscardOld, want DiscardNew") || found.Fatal {
		t.Errorf("%+v", found)
	}
	config.Discard = jetstream.DiscardNew
	if _, err := c.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	awaitWell(t, c)
}

// TestGuardFull: a full stream is told while nothing fits, and no longer when there is
// room, also when nothing is submitted any more.
//
// covers: B4, L13
func TestGuardFull(t *testing.T) {
	t.Parallel()
	for dir, help := range map[string]string{"": "--stream-max-bytes", "/data/nats": "make room on the disk of /data/nats"} {
		t.Run(help, func(t *testing.T) { guardFull(t, StreamConfig{MaxBytes: 4000, Dir: dir}, help) })
	}
}

func guardFull(t *testing.T, config StreamConfig, help string) {
	t.Helper()
	c := dial(t, serve(t, natsserver.Options{}).ClientURL())
	guarded(t, c, config)
	var refused error
	for i := 0; refused == nil && i < 100; i++ {
		got := make(chan error, 1)
		c.PublishPack(part, []core.Submission{{Type: "order", ID: idIn(part, 16, i), Input: []byte(strings.Repeat("1", 500)), At: at}}, func(_ uint64, err error) { got <- err })
		refused = receive(t, "an answer", got)
	}
	if !isBusy(refused) {
		t.Fatal(refused)
	}
	if found := awaitTrouble(t, c, names.StreamTasks(), errFull); !strings.Contains(found.Err.Error(), help) || found.Fatal {
		t.Errorf("%+v", found)
	}
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(within(t), jetstream.WithPurgeKeep(1)); err != nil {
		t.Fatal(err)
	}
	awaitWell(t, c)
}

// TestTroubleOfTheConnection: a server that is away is one trouble, since when, and the
// streams have none.
func TestTroubleOfTheConnection(t *testing.T) {
	dir := t.TempDir()
	s, err := natsserver.Start(natsserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, s.ClientURL())
	c := dial(t, s.ClientURL())
	guarded(t, c, StreamConfig{})
	began := time.Now()
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	// Until the client has called back, the connection counts as lost at the moment one looks.
	eventually(t, "a trouble since a moment that was noted", func() bool { return c.away.Load() != nil && trouble(c, TroubleConnection) != nil })
	first := *trouble(c, TroubleConnection)
	if first.Since.Before(began) || first.Fatal || first.Err == nil || c.Closed() != nil {
		t.Errorf("%+v, closed %v", first, c.Closed())
	}
	if all := c.Trouble(); len(all) != 1 || !all[0].Since.Equal(first.Since) {
		t.Errorf("%+v", all)
	}
	serve(t, natsserver.Options{Dir: dir, Port: port})
	awaitWell(t, c)
	c.Close()
	if all := c.Trouble(); c.Closed() == nil || len(all) != 1 || !all[0].Fatal {
		t.Errorf("%+v, closed %v", all, c.Closed())
	}
}

// portOf is the port of a server, for another one in its place.
func portOf(t *testing.T, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestReaderOfALostStream: a reader whose stream is lost and made again ends with the
// reason, also when the new stream is longer than its cursor; while it is missing it waits.
//
// covers: A5
func TestReaderOfALostStream(t *testing.T) {
	c := ready(t)
	id, err := c.Identity(within(t))
	if err != nil {
		t.Fatal(err)
	}
	tasks, _, _ := strings.Cut(id, "/")
	publishTasks(t, c, 3)
	s := newSink()
	s.read(t, c, 1, 0, ReadConfig{Stream: tasks})
	s.await(t, 1, 2, 3)
	if err := c.js.DeleteStream(within(t), names.StreamTasks()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Identity(within(t)); !errors.Is(err, ErrNoStream) {
		t.Errorf("identity: %v", err)
	}
	if _, err := c.ReadTasks(within(t), part, 1, 3, ReadConfig{Stream: tasks}, func(*TaskMessage) {}, nil); !errors.Is(err, ErrNoStream) {
		t.Errorf("new reader: %v", err)
	}
	setUp(t, c, StreamConfig{})
	publishTasks(t, c, 5)
	if err := receive(t, "the end of the reader", s.lost); !errors.Is(err, errOtherStream) {
		t.Errorf("%v", err)
	}
	if _, err := c.ReadTasks(within(t), part, 2, 3, ReadConfig{Stream: tasks}, func(*TaskMessage) {}, nil); !errors.Is(err, errOtherStream) {
		t.Errorf("new reader: %v", err)
	}
	again, err := c.Identity(within(t))
	if err != nil || again == id {
		t.Fatalf("%s, %v", again, err)
	}
	if was, is := strings.Split(id, "/"), strings.Split(again, "/"); was[0] == is[0] || was[1] != is[1] {
		t.Errorf("%s, was %s: only the task stream was lost", again, id)
	}
	// All that the new one holds was read by the owner before, or is by the next one.
	next := newSink()
	tasks, _, _ = strings.Cut(again, "/")
	next.read(t, c, 3, 0, ReadConfig{Stream: tasks})
	next.await(t, upTo(5)...)
}

// TestReaderOfARestoredStream: a stream that comes back from a copy of its volume is
// noticed when it ends before what was read, and also when it has grown since.
//
// covers: A6, inv1
func TestReaderOfARestoredStream(t *testing.T) {
	t.Parallel()
	for _, grown := range []int{0, 8} {
		t.Run(strconv.Itoa(grown), func(t *testing.T) {
			dir, backup := t.TempDir(), t.TempDir()
			first, err := natsserver.Start(natsserver.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			port := portOf(t, first.ClientURL())
			c := dial(t, first.ClientURL())
			setUp(t, c, StreamConfig{})
			publishTasks(t, c, 2)
			if err := first.Shutdown(); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			second, err := natsserver.Start(natsserver.Options{Dir: dir, Port: port})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "reconnect", c.Connected)
			s := newSink()
			s.read(t, c, 1, 0, ReadConfig{})
			publishTasks(t, c, 3)
			s.await(t, upTo(5)...)
			// The reader is kept from looking until the restored stream is longer.
			s.mu.Lock()
			s.gate = make(chan struct{})
			s.mu.Unlock()
			publishTasks(t, c, 1)
			s.await(t, upTo(6)...)
			if err := second.Shutdown(); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(filepath.Join(backup, "duly.lock"))
			serve(t, natsserver.Options{Dir: backup, Port: port})
			eventually(t, "reconnect", c.Connected)
			other := dial(t, c.nc.ConnectedUrl())
			publishTasks(t, other, grown)
			s.release()
			if err := receive(t, "the end of the reader", s.lost); !errors.Is(err, ErrRewound) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGuardRewound: a stream that ends before where it ended makes its readers look.
//
// covers: A6
func TestGuardRewound(t *testing.T) {
	c := ready(t)
	publishTasks(t, c, 3)
	s := newSink()
	s.read(t, c, 1, 0, ReadConfig{})
	s.await(t, 1, 2, 3)
	c.guardOnce(within(t))
	c.watched.mu.Lock()
	c.watched.ends[names.StreamTasks()] = 10
	c.watched.mu.Unlock()
	c.guardOnce(within(t))
	if found := trouble(c, names.StreamTasks()); found == nil || !errors.Is(found.Err, ErrRewound) {
		t.Errorf("%+v", found)
	}
	eventually(t, "another consumer", func() bool { return !slices.Contains(consumers(t, c), "p03-e1-1") })
	c.guardOnce(within(t))
	if all := c.Trouble(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	nothing(t, "loss", s.lost)
}

// TestRefusedCredentials: a server that refuses the password, however often, does not end
// the connection: it is there again when the credentials are right, those of a file as the
// file says then. It is logged once.
//
// covers: B1
func TestRefusedCredentials(t *testing.T) {
	var logs lockedBuffer
	config := func(password string) string {
		return fmt.Sprintf("authorization { users: [ {user: duly, password: %s} ] }\njetstream { store_dir: \"$DIR\" }\n", password)
	}
	dir, folder := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", folder)
	context := func(password, url string) {
		file := filepath.Join(folder, "nats", "context", "rotated.json")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"url":%q,"user":"duly","password":%q}`, url, password)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := configuredIn(t, dir, config("one"), -1)
	port := portOf(t, first.ClientURL())
	context("one", first.ClientURL())
	c, err := Dial(within(t), Options{Context: "rotated", Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	setUp(t, c, StreamConfig{})
	first.Shutdown()
	first.WaitForShutdown()
	second := configuredIn(t, dir, config("two"), port)
	eventually(t, "refusals", func() bool { return refusals(t, second) >= 5 })
	if found := trouble(c, TroubleConnection); c.Closed() != nil || found == nil || found.Fatal || !credentialsRefused(found.Err) {
		t.Errorf("%+v, closed %v", found, c.Closed())
	}
	context("two", second.ClientURL())
	eventually(t, "a connection", c.Connected)
	if id, err := c.Identity(within(t)); err != nil {
		t.Errorf("%s, %v", id, err)
	}
	// The line comes after the connection.
	eventually(t, "the line about the connection", func() bool { return strings.Contains(logs.String(), "connected to NATS again") })
	if text := logs.String(); strings.Count(text, "refuses the credentials") != 1 || strings.Count(text, "lost the connection") != 1 || strings.Count(text, "connected to NATS again") != 1 {
		t.Error(text)
	}
}

// refusals is how many connections a server has seen and does not have.
func refusals(t *testing.T, s *server.Server) int {
	t.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return int(v.TotalConnections) - v.Connections
}

// lockedBuffer is written by several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
