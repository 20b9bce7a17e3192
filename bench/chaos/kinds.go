package main

import (
	"time"

	"duly.dev/duly/examples/drone"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/wire"
)

// leaseTime is that of nodes and of the leading supervisor in a round.
const leaseTime = 2 * time.Second

// both are the topologies in which every role is a process.
const both = single | cluster

// What is told of faults that no condition stands for.
const (
	lineGone    = "nodes are gone"
	lineTaken   = "partitions taken over"
	lineLeads   = "leads=true"
	lineAway    = "lost the connection to NATS"
	lineBack    = "connected to NATS again"
	lineRefused = "NATS refuses the credentials"
	lineDenied  = "may not subscribe"
	alertBack   = "database-went-back"
	alertReread = "stream-read-again"
)

// taken is due of a scheduler that dies: who survives says that it is gone and what it takes over.
var taken = &due{lines: []string{lineGone, lineTaken}}

// told is due of what a condition stands for: an alert when it begins, one when it ends, and
// no readiness in between.
func told(condition string) *due {
	return &due{alerts: []string{condition}, unready: []string{condition}}
}

// kinds is every kind of fault there is; bench/chaos/README.md says what each promises.
var kinds = []kind{
	{name: "kill-scheduler", fits: both, weight: 2, least: ms(100), most: ms(3000), due: taken, run: killScheduler},
	{name: "kill-schedulers", fits: single, weight: 1, least: ms(100), most: ms(1500), due: &due{lines: []string{lineTaken}}, run: killSchedulers},
	{name: "kill-ingest", fits: single, weight: 1, least: ms(50), most: ms(1000), run: killIngest},
	{name: "kill-supervisor", fits: single, weight: 1, least: ms(50), most: ms(1500), run: killSupervisor},
	{name: "stop-scheduler", fits: single, weight: 2, least: ms(200), most: 2 * leaseTime, due: &due{after: leaseTime + ms(1600), lines: []string{lineGone, lineTaken}}, run: stopScheduler},
	{name: "stop-ingest", fits: single, weight: 1, least: ms(200), most: ms(3000), run: stopIngest},
	{name: "stall-leader", fits: single, weight: 1, least: leaseTime + ms(500), most: 2*leaseTime + ms(500), due: &due{lines: []string{lineLeads}}, run: stallLeader},
	{name: "kill-agents", fits: both | devOnly, weight: 2, least: ms(50), most: ms(2000), run: killAgents},
	{name: "stop-agents", fits: single | devOnly, weight: 1, least: ms(200), most: ms(3500), run: stopAgents},
	{name: "flood-takeover", fits: single, weight: 1, least: ms(1000), most: ms(2500), due: taken, run: floodTakeover},
	{name: "rolling-restart", fits: single, weight: 1, run: rollingRestart},
	{name: "upgrade", fits: single, weight: 1, older: true, run: upgrade},

	{name: "kill-nats", fits: single, weight: 2, least: ms(100), most: ms(2000), due: &due{lines: []string{lineAway, lineBack}}, run: killNATS},
	{name: "stop-nats", fits: single, weight: 1, least: ms(200), most: ms(3000), run: stopNATS},
	{name: "full-nats", fits: single, weight: 1, least: ms(500), most: ms(14000), due: &due{after: ms(10000), alerts: []string{"streams"}, unready: []string{"streams"}}, run: fullNATS},
	{name: "cut-nats", fits: single | devOnly, weight: 1, least: ms(50), most: ms(2500), run: cutNATS},
	{name: "slow-nats", fits: single | devOnly, weight: 1, least: ms(500), most: ms(2500), run: slowNATS},
	{name: "half-nats", fits: single | devOnly, weight: 1, least: ms(500), most: ms(4000), run: halfNATS},

	{name: "outage-nats", fits: single, weight: 1, least: ms(11500), most: ms(14000), due: told("nats"), run: killNATS},
	{name: "nats-credentials", fits: single, weight: 1, least: ms(5000), most: ms(6000),
		due: &due{unready: []string{"nats"}, lines: []string{lineRefused, lineBack}}, run: refuseCredentials},
	{name: "agent-rights", fits: single, weight: 1, least: ms(2000), most: ms(4000), due: &due{lines: []string{lineDenied}}, run: denyAgents},
	{name: "full-stream", fits: single | devOnly, weight: 1, least: ms(5000), most: ms(9000), due: told("streams"), run: fullStream},
	{name: "lose-tasks", fits: single | devOnly, weight: 1, due: &due{alerts: []string{"streams", alertReread}, unready: []string{"streams"}}, run: loseTasks},
	{name: "lose-control", fits: single | devOnly, weight: 1, due: told("streams"), run: lost(wire.Names.StreamControl)},
	{name: "lose-events", fits: single | devOnly, weight: 1, due: told("streams"), run: loseEvents},
	{name: "lose-dead", fits: single | devOnly, weight: 1, due: told("streams"), run: lost(wire.Names.StreamDead)},
	{name: "lose-nodes", fits: single | devOnly, weight: 1, due: told("streams"), run: lost(bucket(wire.Names.BucketNodes))},
	{name: "lose-partitions", fits: single | devOnly, weight: 1, due: told("streams"), run: lost(bucket(wire.Names.BucketPartitions))},
	{name: "lose-keys", fits: single | devOnly, weight: 1, due: told("streams"), run: lost(bucket(wire.Names.BucketKeys))},
	{name: "second-installation", fits: single, weight: 1, due: &due{}, run: secondInstallation},
	{name: "wrong-clock", fits: single, weight: 1, least: ms(4000), most: ms(8000), due: &due{alerts: []string{"clock", "clock-far"}, unready: []string{"clock-far"}}, run: wrongClock},

	{name: "kill-stream-leader", fits: cluster, weight: 3, least: ms(100), most: ms(3000), run: killStreamLeader},
	{name: "stop-stream-leader", fits: cluster, weight: 2, least: ms(500), most: ms(4000), run: stopStreamLeader},
	{name: "kill-nats-node", fits: cluster, weight: 1, least: ms(100), most: ms(2000), run: killNATSNode},
	{name: "rolling-nats", fits: cluster, weight: 1, run: rollingNATS},

	{name: "kill-postgres", fits: single, weight: 2, least: ms(50), most: ms(1500), run: killPostgres},
	{name: "full-postgres", fits: single, weight: 1, least: ms(500), most: ms(2500), run: fullPostgres},
	{name: "cut-postgres", fits: single, weight: 1, least: ms(50), most: ms(2500), run: cutPostgres},
	{name: "slow-postgres", fits: single, weight: 1, least: ms(500), most: ms(2500), run: slowPostgres},
	{name: "half-postgres", fits: single, weight: 1, least: ms(500), most: ms(4000), run: halfPostgres},

	{name: "outage-postgres", fits: single, weight: 1, least: ms(11500), most: ms(14000), due: told("database"), run: killPostgres},
	{name: "read-only-postgres", fits: single, weight: 1, least: ms(12000), most: ms(14000), due: told("commits"), run: readOnlyPostgres},
	{name: "promote-standby", fits: single, weight: 3, copies: true, least: ms(1000), most: ms(2000), due: &due{alerts: []string{alertBack}, lines: []string{lineTaken}}, run: promoteStandby},
	{name: "restore-backup", fits: single, weight: 3, copies: true, least: ms(3000), most: ms(8000), due: &due{alerts: []string{alertBack}, lines: []string{lineTaken}}, run: restoreBackup},

	{name: "kill-dev", fits: devOnly, weight: 4, least: ms(50), most: ms(1500), run: killDev},
	{name: "stop-dev", fits: devOnly, weight: 2, least: ms(200), most: 2 * leaseTime, run: stopDev},
	{name: "restart-dev", fits: devOnly, weight: 1, least: ms(50), most: ms(500), run: restartDev},
	{name: "full-dev", fits: devOnly, weight: 2, least: ms(500), most: ms(2500), run: fullDev},
	{name: "restore-dev", fits: devOnly, weight: 3, copies: true, least: ms(3000), most: ms(8000), due: &due{alerts: []string{alertBack}, lines: []string{lineTaken}}, run: restoreDev},
	{name: "flood-kill-dev", fits: devOnly, weight: 1, least: ms(1000), most: ms(2000), run: floodKillDev},
	{name: "upgrade-dev", fits: devOnly, weight: 1, least: ms(500), most: ms(1500), older: true, run: upgradeDev},

	{name: "repair-kill-runner", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1000), operators: true,
		run: operation(operate.ActionResubmit, drone.StepDrone, sickTasks, 0, noBrake, killRunner)},
	{name: "repair-kill-owner", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1500), operators: true,
		run: operation(operate.ActionUndo, drone.StepDrone, 0, 0, noBrake, killOwners)},
	{name: "repair-kill-postgres", fits: single, weight: 1, least: ms(500), most: ms(3000), operators: true,
		run: operation(operate.ActionAccept, drone.StepTransport, 0, 0, noBrake, killDatabase)},
	{name: "repair-kill-nats", fits: single, weight: 1, least: ms(500), most: ms(3000), operators: true, due: &due{lines: []string{lineAway, lineBack}},
		run: operation(operate.ActionResubmit, drone.StepDelivery, sickTasks, 0, noBrake, killBus)},
	{name: "repair-change", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1000), operators: true,
		run: operation(operate.ActionResubmit, drone.StepPackage, sickTasks, slowRate, noBrake, changeAmid)},
	{name: "repair-brake", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1000), operators: true,
		run: operation(operate.ActionResubmit, drone.StepDrone, repairTasks, 0, brakePct, brakes)},
	{name: "repair-twice", fits: single, weight: 1, least: ms(50), most: ms(1000), operators: true, run: repairTwice},
	{name: "pause-kill", fits: single | devOnly, weight: 2, least: ms(50), most: ms(2500), operators: true, run: pauseKill},
	{name: "limit-kill", fits: single | devOnly, weight: 2, least: ms(50), most: ms(2500), operators: true, run: limitKill},
	{name: "breaker-kill", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1500), due: &due{alerts: []string{"breaker"}}, run: breakerKill},
	{name: "pin-kill", fits: single, weight: 1, least: ms(50), most: ms(1500), operators: true, run: pinKill},
	{name: "by-hand", fits: single | devOnly, weight: 2, least: ms(50), most: ms(1000), operators: true, run: byHand},
	{name: "kill-receiver", fits: single, weight: 1, least: ms(1000), most: ms(4000), operators: true, run: killReceiver},
	{name: "many-readers", fits: single | devOnly, weight: 1, least: ms(50), most: ms(1000), operators: true, run: manyReaders},
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
