package natsbus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/internal/wire"
)

// configuredIn starts a server with a configuration file in a folder; port -1 is any.
// JetStream's settings are the caller's; $DIR is where it may store.
func configuredIn(t *testing.T, dir, config string, port int) *server.Server {
	t.Helper()
	file := filepath.Join(dir, "nats.conf")
	text := strings.ReplaceAll(config, "$DIR", filepath.Join(dir, "store"))
	if err := os.WriteFile(file, fmt.Appendf(nil, "host: 127.0.0.1\nport: %d\n%s", port, text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.NoLog, o.NoSigs = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("server is not ready")
	}
	return s
}

// account is a server with one account of those limits; its user is duly, x.
func account(t *testing.T, limits, jetStream string) string {
	t.Helper()
	url := configuredIn(t, t.TempDir(), fmt.Sprintf("accounts { APP { jetstream { %s }, users: [ {user: duly, password: x} ] } }\njetstream { store_dir: \"$DIR\", %s }\n", limits, jetStream), -1).ClientURL()
	return strings.Replace(url, "nats://", "nats://duly:x@", 1)
}

// bounds are the sizes of all streams and buckets.
func bounds(t *testing.T, c *Conn) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, r := range (StreamConfig{}).resources(wire.Names{}) {
		stream, err := c.js.Stream(within(t), r.want.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[r.name()] = stream.CachedInfo().Config.MaxBytes
	}
	return all
}

// TestSizesFollowTheOffer: every stream and bucket has a bound, in shares of what the
// account or the server offers, and hosted accounts work as they are.
//
// covers: B5
func TestSizesFollowTheOffer(t *testing.T) {
	t.Parallel()
	const gib = gibibyte
	for _, c := range []struct {
		name, limits, jetStream      string
		tasks, control, events, dead [2]int64 // from, to
	}{
		{"unlimited", "max_mem: 1GB, max_file: -1", "max_file_store: 100GB", [2]int64{10 * gib, 10 * gib}, [2]int64{gib, gib}, [2]int64{4 * gib, 4 * gib}, [2]int64{gib, gib}},
		{"bytes required", "max_mem: 1GB, max_file: 50GB, max_bytes_required: true", "max_file_store: 100GB", [2]int64{10 * gib, 10 * gib}, [2]int64{gib, gib}, [2]int64{4 * gib, 4 * gib}, [2]int64{gib, gib}},
		{"5 GB", "max_mem: 1GB, max_file: 5GB", "max_file_store: 100GB", [2]int64{27 * gib / 10, 3 * gib}, [2]int64{gib / 5, gib / 4}, [2]int64{9 * gib / 10, gib}, [2]int64{gib / 5, gib / 4}},
		{"small stream", "max_mem: 1GB, max_file: 50GB, store_max_stream_bytes: 100MB", "max_file_store: 100GB", [2]int64{90 * mebibyte, 100 * mebibyte}, [2]int64{90 * mebibyte, 100 * mebibyte}, [2]int64{90 * mebibyte, 100 * mebibyte}, [2]int64{90 * mebibyte, 100 * mebibyte}},
		{"10 GB server", "max_mem: 1GB, max_file: -1", "max_file_store: 10GB", [2]int64{5 * gib, 5 * gib}, [2]int64{gib / 2, gib / 2}, [2]int64{2 * gib, 2 * gib}, [2]int64{gib / 2, gib / 2}},
		{"no memory", "max_mem: 0, max_file: 50GB", "max_file_store: 100GB", [2]int64{10 * gib, 10 * gib}, [2]int64{gib, gib}, [2]int64{4 * gib, 4 * gib}, [2]int64{gib, gib}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, account(t, c.limits, c.jetStream))
			setUp(t, conn, StreamConfig{})
			has := bounds(t, conn)
			for name, want := range map[string][2]int64{names.StreamTasks(): c.tasks, names.StreamControl(): c.control, names.StreamEvents(): c.events, names.StreamDead(): c.dead,
				names.BucketNodes(): {nodesBytes, nodesBytes}, names.BucketKeys(): {keysBytes, keysBytes}, names.BucketPartitions(): {partitionsBytes, partitionsBytes}} {
				if has[name] < want[0] || has[name] > want[1] {
					t.Errorf("%s: %s, want %s to %s", name, Bytes(has[name]), Bytes(want[0]), Bytes(want[1]))
				}
			}
			setUp(t, conn, StreamConfig{})
			if again := bounds(t, conn); fmt.Sprint(again) != fmt.Sprint(has) {
				t.Errorf("changed: %v, was %v", again, has)
			}
			publishTasks(t, conn, 1)
			s := newSink()
			s.read(t, conn, 1, 0, ReadConfig{})
			s.await(t, 1)
		})
	}
}

// TestSizesMakeRoom: a task stream that has nearly all of the
// server's storage becomes smaller, so that the others have room; unbounded ones get a
// bound that holds what they have.
func TestSizesMakeRoom(t *testing.T) {
	c := dial(t, account(t, "max_mem: 1GB, max_file: -1", "max_file_store: 10GB"))
	setUp(t, c, StreamConfig{})
	for _, name := range []string{names.StreamControl(), names.StreamDead(), wire.BucketStream(names.BucketPartitions())} {
		if err := c.js.DeleteStream(within(t), name); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name string, bytes int64) {
		stream, err := c.js.Stream(within(t), name)
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		config.MaxBytes = bytes
		if _, err := c.js.UpdateStream(within(t), config); err != nil {
			t.Fatal(err)
		}
	}
	set(names.StreamEvents(), -1)
	set(names.StreamTasks(), 9_900_000_000)
	setUp(t, c, StreamConfig{})
	has := bounds(t, c)
	if has[names.StreamTasks()] >= 9_900_000_000 || has[names.StreamTasks()] < shareTasks.least || has[names.StreamEvents()] <= 0 || has[names.StreamControl()] <= 0 {
		t.Errorf("%v", has)
	}
}

// TestSizesRefused: a refusal says which stream, how much of what, and the flag.
//
// covers: B5, L13
func TestSizesRefused(t *testing.T) {
	for _, c := range []struct {
		name, limits, jetStream string
		config                  StreamConfig
		want                    []string
		err                     error
	}{
		{"explicit", "max_mem: 1GB, max_file: 5GB", "max_file_store: 100GB", StreamConfig{MaxBytes: 20 * gibibyte},
			[]string{"stream DULY_TASKS:", "it wants 20.0 GiB", "NATS offers 5.0 GiB", "(--stream-max-bytes)", "max_file of the account"}, errStorage},
		{"explicit events", "max_mem: 1GB, max_file: -1", "max_file_store: 10GB", StreamConfig{EventsBytes: 20 * gibibyte},
			[]string{"stream DULY_EVENTS:", "it wants 20.0 GiB", "without saying how much", "(--stream-events-max-bytes)", "max_file_store of the server"}, errStorage},
		{"too small", "max_mem: 1GB, max_file: 40MB", "max_file_store: 100GB", StreamConfig{},
			[]string{"stream DULY_", "--stream-max-bytes, --stream-control-max-bytes, --stream-events-max-bytes, --stream-dead-max-bytes"}, errStorage},
		{"a server in this process", "max_mem: 1GB, max_file: 40MB", "max_file_store: 100GB", StreamConfig{Dir: "/data/nats"},
			[]string{"stream DULY_", "Make room on the disk of /data/nats"}, errStorage},
		{"few streams", "max_mem: 1GB, max_file: 50GB, max_streams: 4", "max_file_store: 100GB", StreamConfig{},
			[]string{"8 streams are to be made", "may have 4 and has 0", "max_streams to 8"}, nil},
		{"replicas", "max_mem: 1GB, max_file: 50GB", "max_file_store: 100GB", StreamConfig{Replicas: 3},
			[]string{"stream DULY_TASKS:", "--stream-replicas"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, account(t, c.limits, c.jetStream))
			_, err := conn.Setup(within(t), c.config)
			if err == nil || c.err != nil && !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
			if c.config.Dir != "" && strings.Contains(err.Error(), "--") {
				t.Errorf("it names a flag: %v", err)
			}
		})
	}
}

// TestChangeKeepsTheRest: what an operator has set and Duly does not mind survives a
// change in place.
func TestChangeKeepsTheRest(t *testing.T) {
	c := ready(t)
	stream, err := c.js.Stream(within(t), names.StreamTasks())
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Compression = jetstream.S2Compression
	config.Metadata["owner"] = "payments"
	if _, err := c.js.UpdateStream(within(t), config); err != nil {
		t.Fatal(err)
	}
	setUp(t, c, StreamConfig{MaxBytes: 2 * gibibyte})
	if stream, err = c.js.Stream(within(t), names.StreamTasks()); err != nil {
		t.Fatal(err)
	}
	if has := stream.CachedInfo().Config; has.Compression != jetstream.S2Compression || has.Metadata["owner"] != "payments" || has.MaxBytes != 2*gibibyte {
		t.Errorf("%+v", has)
	}
}
