package httpagent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly"
	"duly.dev/duly/agents"
	"duly.dev/duly/internal/core"
)

// echoEnv makes the test binary the service of the benchmarks, in a process of its own: its processor time is not ours.
const echoEnv = "DULY_HTTPAGENT_ECHO"

func echo() {
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, r.Body)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() { // ends with the benchmark
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	_ = server.Serve(listener)
}

// startEcho starts the service.
func startEcho(b *testing.B) (url string) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), echoEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return "http://" + strings.TrimSpace(addr)
}

// benchStep is a do with all that a usual one has.
const benchStep = `
do: {method: PUT, path: "/charges/{ref}?of={task}", headers: {X-Customer: "{input.customer}"}, body: "{'cents': input.cents, 'ref': key}", result: "{'id': body.ref, 'cents': body.cents}"}
undo: {path: "/charges/{ref}"}
`

// BenchmarkCalls is one command: templates, request, answer, result. calls/s/core is by this process's processor time;
// the service is another process.
func BenchmarkCalls(b *testing.B) {
	for name, service := range map[string]string{"plain": "", "limits": "breaker: {}\nconcurrent: 1000\nrate: 1000000"} {
		b.Run(name, func(b *testing.B) {
			all, err := Read("agents.yaml", []byte(text(startEcho(b), service, benchStep)))
			if err != nil {
				b.Fatal(err)
			}
			defer all.services["bank"].close()
			one, err := duly.NewAgent(nil, duly.Retries(0))
			if err != nil {
				b.Fatal(err)
			}
			if err := all.agents[0].register(one.Runtime()); err != nil {
				b.Fatal(err)
			}
			var failed atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(16)
			before := used()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if reply, ok := handleOne(b, one.Runtime()); !ok || reply.Code != 0 {
						failed.Add(1)
					}
				}
			})
			b.ReportMetric(float64(b.N)/(used()-before).Seconds(), "calls/s/core")
			if n := failed.Load(); n > 0 {
				b.Errorf("%d of %d calls failed", n, b.N)
			}
		})
	}
}

func handleOne(b *testing.B, r *agents.Runtime) (core.Reply, bool) {
	cmd := command()
	cmd.Input = []byte(`{"cents":1999,"customer":"c-1"}`)
	return r.Handle(b.Context(), core.InstantOf(time.Now()), &cmd)
}

// BenchmarkLatency is 500 commands a second over NATS: from sending one to its reply, with the request to the service
// between. Run it with -benchtime 5000x.
func BenchmarkLatency(b *testing.B) {
	nc := startNATS(b)
	stop := run(b, nc, text(startEcho(b), "", benchStep))
	ask(b, nc, "duly.do.pay", 1)
	sent, took := make([]time.Time, b.N), make([]time.Duration, b.N)
	done := make(chan bool, b.N)
	sub, err := nc.Subscribe("duly.reply.1.1.*", func(m *nats.Msg) {
		n, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		if err == nil && m.Header.Get("Nats-Service-Error-Code") == "" {
			took[n] = time.Since(sent[n])
			done <- true
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	b.ResetTimer()
	for i := range b.N {
		<-tick.C
		sent[i] = time.Now()
		if err := nc.PublishRequest("duly.do.pay", "duly.reply.1.1."+strconv.Itoa(i), []byte(strings.Replace(message, `"cents"`, `"customer":"c","cents"`, 1))); err != nil {
			b.Fatal(err)
		}
	}
	for range b.N {
		select {
		case <-done:
		case <-time.After(patience):
			b.Fatal("a reply is missing")
		}
	}
	b.StopTimer()
	tick.Stop()
	_ = sub.Unsubscribe()
	if err := stop(); err != nil {
		b.Error(err)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkWaiting is what commands cost that wait for room: memory of each, and goroutines. Run it with -benchtime 1x.
func BenchmarkWaiting(b *testing.B) {
	const waiting = 10_000
	for range b.N {
		out := make(chan bool)
		in := make(chan bool, waiting+100)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			in <- true
			<-out
			w.WriteHeader(204)
		}))
		nc := startNATS(b)
		stop := run(b, nc, strings.Replace(text(server.URL, "", plain), "    service: bank\n", "    service: bank\n    running: 10\n    waiting: 20000\n", 1))
		sub, err := nc.SubscribeSync("duly.reply.1.1.*")
		if err != nil {
			b.Fatal(err)
		}
		send := func(from, to int) {
			for i := from; i < to; i++ {
				body := strings.Replace(message, `5000`, `60000`, 1)
				if err := nc.PublishRequest("duly.do.pay", "duly.reply.1.1."+strconv.Itoa(i), []byte(body)); err != nil {
					b.Fatal(err)
				}
			}
			if err := nc.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		until(b, "the agent is there", func() bool {
			msg, err := nc.Request("$SRV.PING.duly-pay", nil, patience)
			return err == nil && len(msg.Data) > 0
		})
		send(0, 10)
		for range 10 {
			<-in
		}
		before, goroutines := heap(), runtime.NumGoroutine()
		send(10, 10+waiting)
		// What comes last may still be on its way when the first thousand wait.
		until(b, "all wait", func() bool { return heap()-before > waiting*100 })
		pause := time.NewTimer(time.Second)
		<-pause.C
		b.ReportMetric(float64(heap()-before)/waiting, "B/waiting")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines-more")
		close(out)
		for range waiting + 10 {
			if msg, err := sub.NextMsg(patience); err != nil || msg.Header.Get("Nats-Service-Error-Code") != "" {
				b.Fatalf("%+v %v", msg, err)
			}
		}
		b.ReportMetric(float64(heap()-before)/1024, "KiB-left")
		if err := stop(); err != nil {
			b.Error(err)
		}
		server.Close()
	}
}

func heap() int {
	debug.FreeOSMemory() // collects all garbage
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
