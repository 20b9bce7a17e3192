package main

import "time"

// leaseTime is that of nodes and of the leading supervisor in a round.
const leaseTime = 2 * time.Second

// both are the topologies in which every role is a process.
const both = single | cluster

// kinds is every kind of fault there is; docs/chaos.md says what each promises.
var kinds = []kind{
	{name: "kill-scheduler", fits: both, weight: 2, least: ms(100), most: ms(3000), run: killScheduler},
	{name: "kill-schedulers", fits: single, weight: 1, least: ms(100), most: ms(1500), run: killSchedulers},
	{name: "kill-ingest", fits: single, weight: 1, least: ms(50), most: ms(1000), run: killIngest},
	{name: "kill-supervisor", fits: single, weight: 1, least: ms(50), most: ms(1500), run: killSupervisor},
	{name: "stop-scheduler", fits: single, weight: 2, least: ms(200), most: 2 * leaseTime, run: stopScheduler},
	{name: "stop-ingest", fits: single, weight: 1, least: ms(200), most: ms(3000), run: stopIngest},
	{name: "stall-leader", fits: single, weight: 1, least: leaseTime + ms(500), most: 2*leaseTime + ms(500), run: stallLeader},
	{name: "kill-agents", fits: both | devOnly, weight: 2, least: ms(50), most: ms(2000), run: killAgents},
	{name: "stop-agents", fits: single | devOnly, weight: 1, least: ms(200), most: ms(3500), run: stopAgents},
	{name: "flood-takeover", fits: single, weight: 1, least: ms(1000), most: ms(2500), run: floodTakeover},
	{name: "rolling-restart", fits: single, weight: 1, run: rollingRestart},
	{name: "upgrade", fits: single, weight: 1, older: true, run: upgrade},

	{name: "kill-nats", fits: single, weight: 2, least: ms(100), most: ms(2000), run: killNATS},
	{name: "stop-nats", fits: single, weight: 1, least: ms(200), most: ms(3000), run: stopNATS},
	{name: "full-nats", fits: single, weight: 1, least: ms(500), most: ms(2500), run: fullNATS},
	{name: "cut-nats", fits: single | devOnly, weight: 1, least: ms(50), most: ms(2500), run: cutNATS},
	{name: "slow-nats", fits: single | devOnly, weight: 1, least: ms(500), most: ms(2500), run: slowNATS},
	{name: "half-nats", fits: single | devOnly, weight: 1, least: ms(500), most: ms(4000), run: halfNATS},

	{name: "kill-stream-leader", fits: cluster, weight: 3, least: ms(100), most: ms(3000), run: killStreamLeader},
	{name: "stop-stream-leader", fits: cluster, weight: 2, least: ms(500), most: ms(4000), run: stopStreamLeader},
	{name: "kill-nats-node", fits: cluster, weight: 1, least: ms(100), most: ms(2000), run: killNATSNode},
	{name: "rolling-nats", fits: cluster, weight: 1, run: rollingNATS},

	{name: "kill-postgres", fits: single, weight: 2, least: ms(50), most: ms(1500), run: killPostgres},
	{name: "full-postgres", fits: single, weight: 1, least: ms(500), most: ms(2500), run: fullPostgres},
	{name: "cut-postgres", fits: single, weight: 1, least: ms(50), most: ms(2500), run: cutPostgres},
	{name: "slow-postgres", fits: single, weight: 1, least: ms(500), most: ms(2500), run: slowPostgres},
	{name: "half-postgres", fits: single, weight: 1, least: ms(500), most: ms(4000), run: halfPostgres},

	{name: "kill-dev", fits: devOnly, weight: 4, least: ms(50), most: ms(1500), run: killDev},
	{name: "stop-dev", fits: devOnly, weight: 2, least: ms(200), most: 2 * leaseTime, run: stopDev},
	{name: "restart-dev", fits: devOnly, weight: 1, least: ms(50), most: ms(500), run: restartDev},
	{name: "full-dev", fits: devOnly, weight: 2, least: ms(500), most: ms(2500), run: fullDev},
	{name: "flood-kill-dev", fits: devOnly, weight: 1, least: ms(1000), most: ms(2000), run: floodKillDev},
	{name: "upgrade-dev", fits: devOnly, weight: 1, least: ms(500), most: ms(1500), older: true, run: upgradeDev},
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
