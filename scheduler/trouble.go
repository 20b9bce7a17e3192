package scheduler

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Trouble names something that a scheduler retries for ever. Each outcome goes to Config.Report; none is logged here.
type Trouble string

// The troubles.
const (
	TroubleOwners   Trouble = "owners"        // reading who owns the partitions
	TroubleTakeover Trouble = "takeover"      // taking partitions over
	TroubleRelease  Trouble = "release"       // releasing rows of partitions that are not held
	TroubleCycle    Trouble = "commit-cycle"  // commit cycles
	TroubleEvents   Trouble = "event-stream"  // publishing endings
	TroubleForget   Trouble = "forgetting"    // forgetting old tasks
	TroublePauses   Trouble = "pauses"        // reading what operators have paused
	TroubleBreakers Trouble = "breakers"      // reading and changing breakers
	TroubleLimits   Trouble = "limits"        // reading limits and claiming grants
	newsPatience            = 2 * time.Second // how long news of partitions are collected before they are logged
	newsPartitions          = 64              // most partitions that one log line names
)

// news collects what happens to single partitions, so that a change of many of them is one line of the log.
type news struct {
	mu sync.Mutex
	// failed holds the last error of each partition whose takeover failed.
	failed map[int]error
	// from holds the previous owner of each partition that is about to be taken over.
	from map[int]string
	// takenOver holds the partitions taken over since the last line, with their previous owners.
	takenOver map[int]string
	// lost are the partitions given up since the last line because their row is not as this node left it.
	lost []int
	// since is when the oldest of these was noted.
	since time.Time
}

func newNews() *news {
	return &news{failed: map[int]error{}, from: map[int]string{}, takenOver: map[int]string{}}
}

// about notes the previous owner of a partition that is about to be taken over.
func (n *news) about(p int, before string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.from[p] = before
}

// begin notes the time if nothing is collected yet. The lock is held.
func (n *news) begin() {
	if len(n.takenOver)+len(n.lost) == 0 {
		n.since = time.Now()
	}
}

// lose notes that a partition was given up because its row is not as this node left it.
func (n *news) lose(p int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.begin()
	n.lost = append(n.lost, p)
}

// noteTakeover notes the outcome of a takeover. It returns an error that sums up all partitions whose last
// takeover failed; nil: none.
func (n *news) noteTakeover(p int, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed[p] = err
		return n.failing()
	}
	delete(n.failed, p)
	n.begin()
	n.takenOver[p] = n.from[p]
	delete(n.from, p)
	return n.failing()
}

// only forgets the partitions that are not wanted any more. It returns the summed-up error of the rest, and
// whether fewer have failed now.
func (n *news) only(wanted func(p int) bool) (err error, changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.failed)
	maps.DeleteFunc(n.failed, func(p int, _ error) bool { return !wanted(p) })
	maps.DeleteFunc(n.from, func(p int, _ string) bool { return !wanted(p) })
	return n.failing(), len(n.failed) != before
}

// failing sums up the failed takeovers; nil: there are none. The lock is held.
func (n *news) failing() error {
	if len(n.failed) == 0 {
		return nil
	}
	partitions := slices.Sorted(maps.Keys(n.failed))
	return fmt.Errorf("partitions %s: %w", listed(partitions), n.failed[partitions[0]])
}

// log writes what is collected, one line for each kind. With more set, further news are about to come and log
// waits for them, up to newsPatience. falls reports whether a partition is meant to be this node's: losing
// such a one is a warning.
func (n *news) log(log *slog.Logger, falls func(partition int) bool, more bool) {
	n.mu.Lock()
	takenOver, lost := n.takenOver, n.lost
	if len(takenOver)+len(lost) == 0 || more && time.Since(n.since) < newsPatience {
		n.mu.Unlock()
		return
	}
	n.takenOver, n.lost = map[int]string{}, nil
	n.mu.Unlock()
	if len(takenOver) > 0 {
		log.Info("partitions taken over", "partitions", listed(slices.Sorted(maps.Keys(takenOver))), "from", owners(takenOver))
	}
	slices.Sort(lost)
	// Nodes that start together may take what another one has just taken, before they have heard of each other.
	var wanted, passed []int
	for _, p := range slices.Compact(lost) {
		if falls(p) {
			wanted = append(wanted, p)
		} else {
			passed = append(passed, p)
		}
	}
	if len(wanted) > 0 {
		log.Warn("partitions are not as this node left them: others have taken them over, or the database went back", "partitions", listed(wanted))
	}
	if len(passed) > 0 {
		log.Info("partitions were taken over by the nodes that they belong to now", "partitions", listed(passed))
	}
}

// owners lists the previous owners, each once; "" appears as none.
func owners(taken map[int]string) string {
	var names []string
	for _, name := range taken {
		if name == "" {
			name = "none"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// listed formats partitions for a log line, newsPartitions of them at most.
func listed(partitions []int) string {
	var b strings.Builder
	for i, p := range partitions {
		if i == newsPartitions {
			fmt.Fprintf(&b, ",… %d in all", len(partitions))
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, p)
	}
	return b.String()
}

// logMembers logs which nodes came and went.
func logMembers(log *slog.Logger, before, now []string, first bool) {
	var came, gone []string
	for _, name := range now {
		if !slices.Contains(before, name) {
			came = append(came, name)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			gone = append(gone, name)
		}
	}
	live := strings.Join(now, ",")
	switch {
	case first:
		log.Info("live nodes", "live", live)
	case len(gone) > 0 && len(came) > 0:
		log.Warn("nodes are gone, and others came", "gone", strings.Join(gone, ","), "came", strings.Join(came, ","), "live", live)
	case len(gone) > 0:
		log.Warn("nodes are gone", "gone", strings.Join(gone, ","), "live", live)
	case len(came) > 0:
		log.Info("nodes came", "came", strings.Join(came, ","), "live", live)
	}
}
