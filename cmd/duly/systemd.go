package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyEvery is how often systemd is told how the node is; its watchdog may ask for more.
const notifyEvery = time.Second

// tellSystemd tells systemd, where that started the process, what /readyz and /healthz say: READY=1 when the node is ready
// for the first time, a line of status whenever that changes, and the watchdog's sign as long as no restart is needed.
// health gives the names of what does not hold. It waits for the end of ctx.
func tellSystemd(ctx context.Context, health func() (unready, dead []string), log *slog.Logger) error {
	every := notifyEvery
	watched, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog cannot be served", "error", err)
	}
	if watched > 0 {
		every = min(every, watched/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, told := false, ""
	for {
		unready, dead := health()
		var words []string
		status := "STATUS=ready"
		if len(unready) > 0 {
			status = "STATUS=not ready: " + strings.Join(unready, ", ")
		}
		if status != told {
			words, told = append(words, status), status
		}
		if !began && len(unready) == 0 {
			words, began = append(words, daemon.SdNotifyReady), true
		}
		if watched > 0 && len(dead) == 0 {
			words = append(words, daemon.SdNotifyWatchdog)
		}
		if len(words) > 0 {
			sent, err := daemon.SdNotify(false, strings.Join(words, "\n"))
			if err != nil {
				log.Warn("systemd cannot be told", "error", err)
			}
			if !sent && err == nil { // not started by it
				<-ctx.Done()
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if _, err := daemon.SdNotify(false, daemon.SdNotifyStopping); err != nil {
				log.Warn("systemd cannot be told", "error", err)
			}
			return nil
		}
	}
}

// wellAgents is the health of a process that runs agents alone: it ends when they cannot be served.
func wellAgents() (unready, dead []string) { return nil, nil }
