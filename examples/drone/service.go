package drone

import (
	"context"
	"sync/atomic"
	"time"

	"duly.dev/duly/examples/keep"
)

// ServiceError is a failed call, with a code in the sense of HTTP. The values
// are shared: no call allocates one.
type ServiceError struct {
	Code   int
	Reason string
}

// Error gives the reason.
func (e *ServiceError) Error() string { return e.Reason }

// What services answer besides success.
var (
	ErrSuspended   = &ServiceError{403, "account is suspended"}
	ErrGone        = &ServiceError{410, "the key was undone: its tombstone stands"}
	ErrClosed      = &ServiceError{410, "a probe has found no effect of this attempt"}
	ErrTooEarly    = &ServiceError{425, "a call for the same key is in progress"}
	ErrUnavailable = &ServiceError{503, "service is unavailable"}
	ErrNoUndo      = &ServiceError{405, "a check has no undo"}
)

// ServiceOptions say how the services behave.
type ServiceOptions struct {
	Seed   uint64
	Scale  float64 // of the published latencies; 0: none at all
	Faults Faults
	// LateMax is how long after a call was given up its effect may still come;
	// 0 means 500 ms. Keep it above the plan's grace to exercise tombstones.
	LateMax time.Duration
	Plants  []Plant
	Log     bool // keep every call; for tests, it grows without bound
}

// Services are the five backends of a delivery, each an independent mock.
type Services struct {
	each    [StepCount]Service
	books   Books
	pending pending
	wheel   wheel
	faults  atomic.Pointer[Faults]
}

// Service is one backend. It applies once per key, refuses a do after the
// key's undo, and lets one call per key in at a time. Safe for concurrent use.
type Service struct {
	step    Step
	seed    uint64
	scale   float64
	lateMax time.Duration
	latency Latency
	plants  []Plant
	faults  *atomic.Pointer[Faults]
	books   *Books
	pending *pending
	wheel   *wheel
	counts  counts
}

// NewServices returns the five services with empty books.
func NewServices(o ServiceOptions) (*Services, error) {
	if err := o.Faults.Validate(); err != nil {
		return nil, err
	}
	if o.LateMax == 0 {
		o.LateMax = 500 * time.Millisecond
	}
	all := &Services{}
	all.books.keep = o.Log
	all.faults.Store(&o.Faults)
	for i := range all.each {
		s := &all.each[i]
		s.step, s.latency = Step(i), latencies[i]
		s.seed, s.scale, s.lateMax, s.plants = mix(o.Seed), o.Scale, o.LateMax, o.Plants
		s.faults, s.books, s.pending = &all.faults, &all.books, &all.pending
		s.wheel = &all.wheel
	}
	return all, nil
}

// Service returns one of the five.
func (s *Services) Service(step Step) *Service { return &s.each[step] }

// Books returns the ledgers of all five.
func (s *Services) Books() *Books { return &s.books }

// SetFaults changes the shares for calls from now on: the calm after a storm.
func (s *Services) SetFaults(f Faults) error {
	if err := f.Validate(); err != nil {
		return err
	}
	s.faults.Store(&f)
	return nil
}

// Call is one call to a service.
type Call struct {
	Task    string
	Key     string // <task>/<step>/<round>, the same on every attempt
	Attempt int
	Given   uint32 // delivery: the number of the drone it was given
}

// call is a Call on its way through a service.
type call struct {
	Call
	undo  bool
	step  Step
	round int
	hash  uint64 // of the task
	shard *shard
	entry *entry
	began time.Time // only when the log is kept
	fate  fate
}

// Do performs the service's operation for a key: at most one effect, whatever
// the number of calls. The serial is what it made: a drone's number, …; the
// same for every call of a key. Errors are a *ServiceError, ErrKey, or the
// context's own when the service hung past its deadline: then it is
// not known whether the effect was made.
func (s *Service) Do(ctx context.Context, in Call) (serial uint32, err error) {
	return s.call(ctx, in, false)
}

// Undo removes the effect of a key, if there is one, and leaves a tombstone:
// no later do of the key takes effect. Idempotent. Errors as of Do.
func (s *Service) Undo(ctx context.Context, in Call) error {
	_, err := s.call(ctx, in, true)
	return err
}

// Start is Do, or with undo Undo, without waiting: done is called once, perhaps
// before Start returns, with what they would have returned; the serial is a do's only.
func (s *Service) Start(ctx context.Context, in Call, undo bool, done func(serial uint32, err error)) {
	c, err := s.open(in, undo)
	switch {
	case err != nil:
		done(0, err)
	case c.fate.fault != faultNone || !lasts(ctx, c.fate.latency):
		go func() { done(s.meet(ctx, c)) }() // it may have to listen for the end of the context
	case c.fate.latency == 0:
		done(s.meet(ctx, c)) // at once
	case !c.enter():
		s.note(c, ErrTooEarly)
		done(0, ErrTooEarly)
	default:
		s.wheel.call(c.fate.latency, func() {
			serial, err := s.after(ctx, c)
			s.note(c, err)
			done(serial, err)
		})
	}
}

func (s *Service) call(ctx context.Context, in Call, undo bool) (uint32, error) {
	c, err := s.open(in, undo)
	if err != nil {
		return 0, err
	}
	return s.meet(ctx, c)
}

// open receives a call and decides what it is going to meet.
func (s *Service) open(in Call, undo bool) (*call, error) {
	if undo && !s.step.Undoable() {
		return nil, ErrNoUndo
	}
	round, err := splitKey(in.Key, in.Task, s.step)
	if err != nil {
		return nil, err
	}
	c := &call{Call: in, undo: undo, step: s.step, round: round, hash: hashText(in.Task)}
	if s.books.keep {
		c.began = time.Now()
	}
	s.arrive(c)
	return c, nil
}

// meet is what a call meets, with all the time that takes.
func (s *Service) meet(ctx context.Context, c *call) (serial uint32, err error) {
	switch c.fate.fault {
	case faultNone:
		serial, err = s.run(ctx, c)
	case faultTransient:
		err = s.fail(ctx, c)
	case faultHang:
		err = s.hang(ctx, c)
	case faultSilent:
		err = s.die(ctx, c)
	}
	s.note(c, err)
	return serial, err
}

// note counts what came of a call.
func (s *Service) note(c *call, err error) {
	s.counts.note(err, c.undo)
	if err != nil && s.books.keep {
		s.logFailure(c, err)
	}
}

// arrive counts the call and draws its fate.
func (s *Service) arrive(c *call) {
	c.shard = s.books.shard(c.hash)
	last := uint8(min(c.Attempt, lastUndo-1))
	if c.undo {
		last |= lastUndo
	}
	c.shard.mu.Lock()
	c.entry = &c.shard.open(c.hash, c.Task, c.round).entries[c.step]
	e := c.entry
	if e.last == last && e.repeat < 255 {
		e.repeat++
	} else if e.last != last {
		e.last, e.repeat = last, 0
	}
	if e.calls < 1<<16-1 {
		e.calls++
	}
	repeat := uint64(e.repeat)
	c.shard.mu.Unlock()
	c.fate = s.draw(c, repeat)
}

// run takes its time and then the effect.
func (s *Service) run(ctx context.Context, c *call) (uint32, error) {
	if c.fate.latency == 0 {
		return s.effect(c, true)
	}
	if !c.enter() {
		return 0, ErrTooEarly
	}
	s.take(ctx, c.fate.latency)
	return s.after(ctx, c)
}

// after ends a call that has entered and taken its time: by its effect, unless the
// caller has given up.
func (s *Service) after(ctx context.Context, c *call) (uint32, error) {
	if err := ctx.Err(); err != nil {
		c.leave()
		return 0, err
	}
	return s.effect(c, false)
}

// enter makes the key busy; false means that another call is at it.
func (c *call) enter() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.entry.flags&flagBusy != 0 {
		return false
	}
	c.entry.flags |= flagBusy
	return true
}

// leave ends what enter began, without any effect.
func (c *call) leave() {
	c.shard.mu.Lock()
	c.entry.flags &^= flagBusy
	c.shard.mu.Unlock()
}

// effect does what was asked in one go. fresh is a call that has not entered;
// one that has, leaves.
func (s *Service) effect(c *call, fresh bool) (serial uint32, err error) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	e := c.entry
	if fresh && e.flags&flagBusy != 0 {
		return 0, ErrTooEarly
	}
	e.flags &^= flagBusy
	before := *e
	if c.undo {
		s.undo(c)
	} else {
		err = s.do(c)
	}
	if err == nil && e.live != before.live {
		if err = s.books.file.Add(keep.Effect{Key: c.Key, At: time.Now(), Times: int(e.live)}); err != nil {
			*e = before
		}
	}
	if s.books.keep && err == nil {
		c.shard.log = append(c.shard.log, c.line(nil, e.applied != before.applied || e.live != before.live))
	}
	if err != nil {
		return 0, err
	}
	return e.serial, nil
}

// do is the operation itself. The shard is held.
func (s *Service) do(c *call) error {
	e := c.entry
	switch {
	case e.flags&flagTombstone != 0:
		if e.ghosts > 99 || !s.planted(PlantGhost, c) {
			return ErrGone
		}
		e.ghosts++
	case e.flags&flagDone != 0:
		return nil // the answer is the same, the effect is there
	case c.Attempt <= int(e.closed) && e.closed > 0:
		return ErrClosed
	case s.step == StepAccount && s.suspended(c):
		return ErrSuspended
	}
	e.flags |= flagDone
	if s.planted(PlantForget, c) {
		return nil
	}
	n := uint8(1)
	if s.planted(PlantDouble, c) {
		n = 2
	}
	e.applied += n
	if s.step.Undoable() {
		e.live += n
	}
	if e.serial == 0 {
		e.serial = s.serial(c)
	}
	return nil
}

// undo is the operation's reverse. The shard is held.
func (s *Service) undo(c *call) {
	c.entry.flags |= flagTombstone
	if !s.planted(PlantKeep, c) {
		c.entry.live = 0
	}
}

// suspended is decided once per task, so that trying again does not help.
func (s *Service) suspended(c *call) bool {
	share := s.faults.Load().Refused
	return share > 0 && unit(mix(s.seed^c.hash^saltSuspended)) < share
}

// serial names what the effect made. A delivery keeps the drone it was given,
// so that the checker can see whether it is its own.
func (s *Service) serial(c *call) uint32 {
	if s.step == StepDelivery && c.Given != 0 {
		return c.Given
	}
	return uint32(mix(s.seed^c.hash+uint64(c.round)*saltRound+uint64(c.step+1)*saltSerial)) | 1
}

// line is the call as the log keeps it. The shard is held.
func (c *call) line(err error, applied bool) LogLine {
	return LogLine{
		Step: c.step, Task: c.Task, Key: c.Key, Attempt: c.Attempt, Undo: c.undo,
		Began: c.began, Ended: time.Now(), Applied: applied, Live: c.entry.live > 0, Code: codeOf(err), Err: err,
	}
}

func (s *Service) logFailure(c *call, err error) {
	c.shard.mu.Lock()
	c.shard.log = append(c.shard.log, c.line(err, false))
	c.shard.mu.Unlock()
}

// take lets a call's time pass, or ends early with the context.
func (s *Service) take(ctx context.Context, d time.Duration) {
	if lasts(ctx, d) {
		s.wheel.sleep(d)
		return
	}
	_ = wait(ctx, d) // after looks at the context itself
}

// lasts reports that a call of duration d ends before its context's deadline anyway,
// so that it need not listen for the end of the context. Without a deadline, or with
// a near one, the context may end first.
func lasts(ctx context.Context, d time.Duration) bool {
	by, ok := ctx.Deadline()
	return ok && time.Until(by) > d+10*wheelStep
}

// wait ends early, with the context's error, when the caller gives up.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
