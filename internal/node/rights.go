package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"duly.dev/duly/internal/ground"
	"duly.dev/duly/internal/natsbus"
	"duly.dev/duly/internal/rights"
	"duly.dev/duly/internal/say"
)

// Times of looking at what NATS lets this node do.
const (
	rightsEvery = 5 * time.Second
	// reconnectAfter is the least time between two connections that are made because a
	// subscription was denied.
	reconnectAfter = time.Minute
)

// roleSets are what the roles of the node need of NATS, in their order.
func (n *Node) roleSets() []roleSet {
	o := rights.Options{Names: n.conn.Names(), Inbox: n.conn.Inbox(), StatusTo: n.cfg.ReplyTo, TaskStreams: n.cfg.TaskStreams}
	var all []roleSet
	for _, role := range n.cfg.Roles { // whose names are those of the kinds
		if set, err := rights.Of(role, nil, o); err == nil {
			all = append(all, roleSet{role, set})
		}
	}
	return all
}

type roleSet struct {
	role string
	rights.Set
}

// lack is a right that the node does not have.
type lack struct {
	right rights.Right
	roles []string
	since time.Time
	err   error // the server's word; nil: it has not been tried
}

func (l *lack) text(user string) error {
	may := "alert.no-subscribe"
	if l.right.Publish {
		may = "alert.no-publish"
	}
	what := "role "
	if len(l.roles) > 1 {
		what = "roles "
	}
	err := fmt.Errorf("%s%s: the NATS user %s%s", what, strings.Join(l.roles, ", "), user, say.Of(may, "subject", l.right))
	if l.err != nil {
		err = fmt.Errorf("%w: %w", err, l.err)
	}
	return err
}

// lacking is what the node may not do: by its permissions, where it knows them, and by what was
// denied lately. others are denials of what no role must do.
func (n *Node) lacking(has *natsbus.Permissions) (all []lack, others []natsbus.Denial) {
	add := func(r rights.Right, role string, since time.Time, err error) {
		i := slices.IndexFunc(all, func(l lack) bool { return l.right.Publish == r.Publish && l.right.String() == r.String() })
		if i < 0 {
			i, all = len(all), append(all, lack{right: r, since: since, err: err})
		}
		if all[i].err == nil {
			all[i].err, all[i].since = err, since
		}
		if !slices.Contains(all[i].roles, role) {
			all[i].roles = append(all[i].roles, role)
		}
	}
	sets := n.roleSets()
	if has != nil {
		for _, s := range sets {
			for _, r := range s.Missing(*has) {
				add(r, s.role, time.Time{}, nil)
			}
		}
	}
	for _, d := range n.conn.Denials() {
		if !d.Subscribe && has != nil && (rights.Right{Publish: true, Subject: d.Subject}).Allowed(*has) {
			continue // it was denied, and is allowed now
		}
		if d.Answer && has != nil && has.Answers {
			continue // an asker can cause this, and no right is missing
		}
		known := false
		for _, s := range sets {
			if r := s.Find(d); r != nil && r.Needed {
				add(*r, s.role, d.Since, d.Err)
				known = true
			}
		}
		if !known && d.Subject != natsbus.SubjectUserInfo {
			others = append(others, d)
		}
	}
	return all, others
}

// probeRights finds what NATS does not let this node do, before it is tried where the server tells.
func (n *Node) probeRights(ctx context.Context) []ground.Found {
	if !n.conn.Connected() {
		return nil // another condition says so
	}
	has, err := n.conn.Permissions(ctx)
	known, user := &has, ""
	if err != nil {
		known = nil
	} else if has.User != "" {
		user = has.User + " "
	}
	all, others := n.lacking(known)
	n.report(condRightsOther, otherDenials(others))
	n.resubscribe(known, err)
	found := make([]ground.Found, len(all))
	for i := range all {
		l := &all[i]
		found[i] = ground.Found{Key: l.right.String(), Err: l.text(user), Since: l.since}
	}
	return found
}

func otherDenials(all []natsbus.Denial) error {
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d subjects, for one: %w", len(all), all[0].Err)
}

// resubscribe recreates the connection when a subscription was denied that is allowed now: the
// server does not make it by itself. Where answers cannot be heard, it is tried now and then.
func (n *Node) resubscribe(has *natsbus.Permissions, unknown error) {
	denied := n.conn.Denials()
	again := slices.ContainsFunc(denied, func(d natsbus.Denial) bool {
		if !d.Subscribe {
			return false
		}
		if has == nil {
			return errors.Is(unknown, context.DeadlineExceeded)
		}
		return rights.Right{Subject: d.Subject, Queue: d.Queue}.Allowed(*has)
	})
	if !again || time.Since(n.reconnected) < reconnectAfter {
		return
	}
	n.reconnected = time.Now()
	n.log.Info("connecting to NATS again, because a subscription that was denied may be allowed now")
	if err := n.conn.Resubscribe(); err != nil {
		n.log.Debug("not connected again", "error", err)
	}
}

// withLacking adds to the error of a start that a missing right prevents which rights the roles lack.
func (n *Node) withLacking(ctx context.Context, err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	err = fmt.Errorf("the NATS user lacks what the roles %s need (`duly nats-permissions` prints it): %w", strings.Join(n.cfg.Roles, ", "), err)
	if n.conn == nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	has, unknown := n.conn.Permissions(bounded)
	if unknown != nil {
		return err
	}
	all, _ := n.lacking(&has)
	var lacks []error
	for i := range all {
		lacks = append(lacks, all[i].text(has.User+" "))
	}
	return errors.Join(append([]error{err}, lacks...)...)
}
