package alerts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/redact"
)

// leader is one time of leading: one goroutine owns all of it, and one of each channel sends.
type leader struct {
	s       *Sender
	ctx     context.Context
	open    *incidents
	workers map[string]*worker
	wg      sync.WaitGroup
	flights map[*flight]bool
	done    chan *flight // has a flight that one more channel is done with
	stored  string       // state as last stored
}

// flight is an alert on its way to the channels.
type flight struct {
	alert   core.Alert
	left    int      // channels that are not done with it; of the leader's goroutine
	message *Message // nil: it is of no message
}

// lead delivers until ctx ends, this sender leads no more, or reading fails.
func (s *Sender) lead(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	open, err := loadIncidents(ctx, s.cfg.Store)
	if err != nil {
		return err
	}
	l := &leader{s: s, ctx: ctx, open: open, workers: map[string]*worker{}, flights: map[*flight]bool{}, done: make(chan *flight)}
	defer l.wg.Wait()
	defer cancel()
	if err := l.readChannels(); err != nil {
		return err
	}
	for _, a := range open.untold(time.Now()) {
		l.send(a, nil)
	}
	messages, failed := make(chan Message), make(chan error, 1)
	l.wg.Go(func() {
		failed <- s.cfg.Source.Read(ctx, func(m Message) {
			select {
			case messages <- m:
			case <-ctx.Done():
			}
		})
	})
	return l.run(messages, failed)
}

func (l *leader) run(messages <-chan Message, failed <-chan error) error {
	look, working, leads := time.NewTicker(l.s.cfg.Look), time.NewTicker(workingEvery), time.NewTicker(leadEvery)
	defer look.Stop()
	defer working.Stop()
	defer leads.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return nil
		case err := <-failed:
			return err
		case m := <-messages:
			l.take(m)
		case f := <-l.done:
			l.ended(f)
		case <-working.C:
			for f := range l.flights {
				if f.message != nil {
					_ = f.message.Working() // one that is lost makes the alert come twice, by the same id
				}
			}
		case <-look.C:
			if err := l.readChannels(); err != nil {
				l.s.cfg.Report(err)
			}
			l.sweep()
			l.s.report()
		case <-leads.C:
			if !l.s.cfg.Leads() {
				return nil
			}
		}
	}
}

// take takes a message of the stream.
func (l *leader) take(m Message) {
	a := m.Alert
	for f := range l.flights {
		if f.message != nil && f.alert.ID == a.ID { // it came again because we were slow to say that it is under way
			f.message = &m
			return
		}
	}
	tell := l.open.take(&a)
	l.save()
	if !tell {
		l.acknowledge(&m)
		return
	}
	l.send(a, &m)
}

// send hands an alert to every channel that wants it.
func (l *leader) send(a core.Alert, m *Message) {
	f := &flight{alert: a, message: m, left: 1}
	l.flights[f] = true
	for _, name := range slices.Sorted(maps.Keys(l.workers)) {
		if w := l.workers[name]; w.channel.wants(&a) {
			f.left++
			for _, over := range w.put(f) {
				l.ended(over)
			}
		}
	}
	l.ended(f) // the one that it began with
}

// ended notes that one channel is done with a flight.
func (l *leader) ended(f *flight) {
	if f.left--; f.left > 0 {
		return
	}
	delete(l.flights, f)
	l.open.done(&f.alert)
	l.save()
	if f.message != nil {
		l.acknowledge(f.message)
	}
}

func (l *leader) acknowledge(m *Message) {
	if err := m.Done(); err != nil {
		l.s.cfg.Log.Warn("an alert that is delivered cannot be acknowledged; it comes again by the same id", "alert", m.Alert.Name, "id", m.Alert.ID, "error", err)
	}
}

// save stores the state, if it has changed. Without it a sender after this one tells some alerts again.
func (l *leader) save() {
	data, err := l.open.document()
	if err == nil && string(data) == l.stored {
		return
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(l.ctx, saveMax)
		err = l.s.cfg.Store.PutSetting(ctx, stateName, data)
		cancel()
	}
	if err == nil {
		l.stored = string(data)
	} else if l.ctx.Err() == nil {
		l.s.cfg.Log.Warn("the open alerts cannot be stored", "error", redact.Error(err))
	}
}

// sweep ends what nodes that are gone were in trouble with.
func (l *leader) sweep() {
	if l.s.cfg.Live == nil {
		return
	}
	live, known := l.s.cfg.Live()
	if !known {
		return
	}
	ends := l.open.sweep(live, time.Now())
	l.save()
	for _, a := range ends {
		l.send(a, nil)
	}
}

// readChannels brings the workers up to date with the channels that are stored.
func (l *leader) readChannels() error {
	ctx, cancel := context.WithTimeout(l.ctx, saveMax)
	documents, err := l.s.cfg.Store.Settings(ctx, ChannelPrefix)
	cancel()
	if err != nil {
		return fmt.Errorf("channels of alerts: %w", err)
	}
	names := slices.Sorted(maps.Keys(documents))
	if len(names) > ChannelsMax {
		names = names[:ChannelsMax]
	}
	there := map[string]bool{}
	for _, full := range names {
		name, text := strings.TrimPrefix(full, ChannelPrefix), string(documents[full])
		there[name] = true
		w := l.workers[name]
		if w != nil && w.document == text {
			continue
		}
		c, err := parseChannel(name, documents[full])
		if err != nil {
			l.s.tried(&Channel{Name: name}, err)
			there[name] = false
			continue
		}
		if w != nil {
			w.change(c, text)
			continue
		}
		w = newWorker(l, c, text)
		l.workers[name] = w
		l.s.known(&c)
		l.wg.Go(w.run)
	}
	for name, w := range l.workers {
		if !there[name] {
			delete(l.workers, name)
			w.stop()
		}
	}
	for _, w := range l.workers {
		w.may(waitingMost / len(l.workers))
	}
	l.s.forget(documents)
	return nil
}

// known notes a channel that has not been tried yet.
func (s *Sender) known(c *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.channels[c.Name]
	if st == nil || st.Kind != c.Kind {
		s.channels[c.Name] = &ChannelState{Name: c.Name, Kind: c.Kind}
	}
}

// forget drops the states of channels that are not there any more.
func (s *Sender) forget(documents map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.channels, func(name string, _ *ChannelState) bool { return documents[ChannelPrefix+name] == nil })
}
