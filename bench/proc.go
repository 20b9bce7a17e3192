package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/bench/internal/procfs"
)

// userHertz is the unit of /proc/PID/stat's times on every Linux port in use.
const userHertz = 100

// sampleEvery and pssEvery are how often the processes are looked at.
const (
	sampleEvery = 250 * time.Millisecond
	pssEvery    = 10 * time.Second
)

// usage is processor time used so far, in seconds, by part of the run; stolen is
// what the machine's host gave to others meanwhile.
type usage struct{ generator, engine, nats, agents, database, stolen float64 }

func (u usage) sub(v usage) usage {
	return usage{u.generator - v.generator, u.engine - v.engine, u.nats - v.nats, u.agents - v.agents, u.database - v.database, u.stolen - v.stolen}
}

func (u usage) total() float64 { return u.generator + u.system() }

// system is what was used without the generator.
func (u usage) system() float64 { return u.engine + u.nats + u.agents + u.database }

// per divides by n and gives what each unit is, times scale.
func (u usage) per(n, scale float64) CPU {
	if n <= 0 {
		return CPU{}
	}
	k := scale / n
	return CPU{Total: u.total() * k, Generator: u.generator * k, Engine: u.engine * k, NATS: u.nats * k, Agents: u.agents * k, Database: u.database * k}
}

// sample is the usage at a time.
type sample struct {
	at   int64 // Unix nanoseconds
	used usage
}

// sampler watches the processes of a run.
type sampler struct {
	engine, nats, agents, generator, database int // process ids; 0: none

	mu      sync.Mutex
	samples []sample
	pss     Memory
	frozen  time.Duration // the longest that a sample was late
}

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		s.take(n%int(pssEvery/sampleEvery) == 0)
		from := time.Now()
		select {
		case <-tick.C:
			s.frozen = max(s.frozen, time.Since(from)-sampleEvery)
		case <-ctx.Done():
			s.take(true)
			return
		}
	}
}

func (s *sampler) take(pss bool) {
	at := time.Now().UnixNano()
	u := usage{generator: cpuOf(s.generator), engine: cpuOf(s.engine), nats: cpuOf(s.nats), agents: cpuOf(s.agents), stolen: procfs.Stolen() / userHertz}
	database := procfs.Family(s.database)
	for _, pid := range database {
		u.database += cpuOf(pid)
	}
	u.database += cpuOfDead(s.database)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample{at, u})
	if pss {
		s.pss.Engine = max(s.pss.Engine, pssOf(s.engine))
		sum := 0.0
		for _, pid := range database {
			sum += pssOf(pid)
		}
		s.pss.Database = max(s.pss.Database, sum)
	}
}

// at is the usage at a time, interpolated between two samples.
func (s *sampler) at(ns int64) usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.samples); i++ {
		a, b := s.samples[i-1], s.samples[i]
		if ns > b.at && i < len(s.samples)-1 {
			continue
		}
		f := min(max(0, float64(ns-a.at)/float64(b.at-a.at)), 1)
		d := b.used.sub(a.used)
		return usage{a.used.generator + f*d.generator, a.used.engine + f*d.engine, a.used.nats + f*d.nats, a.used.agents + f*d.agents, a.used.database + f*d.database, a.used.stolen + f*d.stolen}
	}
	return usage{}
}

// between is what was used from one time to another.
func (s *sampler) between(from, to int64) usage { return s.at(to).sub(s.at(from)) }

// fields of procfs.Stat.
const (
	statUser   = 11
	statSystem = 12
	statDead   = 13 // user and system of the children that were waited for
)

// cpuOf is the processor time of a process in seconds. The task directory's
// schedstat would be finer, but a hundredth is enough for a run of seconds.
func cpuOf(pid int) float64 {
	f := procfs.Stat(pid)
	if pid == 0 || len(f) <= statSystem {
		return 0
	}
	return (number(f[statUser]) + number(f[statSystem])) / userHertz
}

// cpuOfDead is that of its children that have ended.
func cpuOfDead(pid int) float64 {
	f := procfs.Stat(pid)
	if pid == 0 || len(f) <= statDead+1 {
		return 0
	}
	return (number(f[statDead]) + number(f[statDead+1])) / userHertz
}

// pssOf is the proportional set size of a process in MiB; 0 when it has ended.
func pssOf(pid int) float64 {
	mib, _ := procfs.PSS(pid)
	return mib
}

func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64) // the kernel's
	return n
}

// machine describes what the figures were measured on.
func machine(goVersion, database string) (string, error) {
	cpu, err1 := os.ReadFile("/proc/cpuinfo")
	kernel, err2 := os.ReadFile("/proc/sys/kernel/osrelease")
	if err := errors.Join(err1, err2); err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	cores, model := 0, ""
	for _, line := range strings.Split(string(cpu), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "processor":
			cores++
		case "model name":
			model = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d cores, %s, Linux %s, %s, %s", cores, model, strings.TrimSpace(string(kernel)), goVersion, database), nil
}
