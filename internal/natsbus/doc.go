// Package natsbus puts Duly's wire (package wire) on connections to NATS: streams, buckets,
// consumers, leases, publishing and dispatch. It moves bytes and decides nothing. Roles do
// not import it: the wiring gives its methods to the ports they declare, so it speaks in
// values of internal/core and in callbacks.
//
// # A connection
//
//	Dial(ctx, Options) (*Conn, error)           waits for a server, checks it, reconnects for ever
//	Wrap(nc, logger, wire.Names) (*Conn, error) on a connection of the caller's, unchecked
//	Conn.NATS, Names, MaxPayload, Connected, Dropped, Close
//	Conn.Setup(ctx, StreamConfig) (Ready, error), Conn.Closed, Conn.Bucket
//	Conn.Guard(ctx)                             makes again what is lost; Conn.Trouble lists what is wrong
//	Conn.MakeRoomTasks, MakeRoomControl         remove what every partition has committed
//	Conn.Home(ctx, partition), ForwardIn        several task streams: which has a partition, and the way there
//	Conn.BeginChange → *Change: Prepare, Move, Finish  changes how many there are
//	Conn.Permissions, Denials, Resubscribe      what the user may do, and what was refused
//
// # Submissions and requests (ingest)
//
//	Conn.ServeSubmit(func(*SubmitRequest)); SubmitRequest.Accept, Reject
//	Conn.PublishPack(partition, subs, done); BusyError, errBusy
//	Conn.ServeAsk(func(*AskRequest), func(*ReadRequest)); Conn.PublishControl(ctx, partition, *core.Control)
//	Conn.ServePlans, AnnouncePlans, OnPlansChanged
//
// # Partitions (scheduler)
//
//	Conn.ReadTasks, Conn.ReadControl → *Reader: Stop; TaskMessage.Ack
//	Conn.NewSender(Replies) → *Sender: Send; Conn.SendCommand(*core.Command)
//	Conn.ServeReplies(partition, reply, unserved); Conn.Genuine
//	Conn.PublishEndings(endings, done), PublishRefusals, Notify, Live, Dead
//
// # Agents
//
//	Conn.ServeCommands(agent, batched, func(*CommandRequest)) → *Service: Denied, Stop
//	CommandRequest.Command, Fail, Reply
//
// # Membership
//
//	Conn.NewLease(key, value, ttl) → *Lease: Renew, Release; Conn.Holder
//	Conn.WatchNodes(ctx, func(live []string))
//
// # Operators
//
//	Conn.PutWish, Wish, WatchWishes             where partitions are to be
//	Conn.AnnouncePauses, OnPausesChanged        what is held back has changed
//	Conn.Away, ServeAway                        what nodes have in flight that waits for agents
//	Conn.Instances(ctx, agents), Lags           who answers now, and how far owners are behind
//
// # Clients
//
//	Conn.OnStatus
//
// # What a callback may do
//
// Each subscription has one goroutine. A callback that blocks delays its own subscription
// only; what waits for it is bounded, and Conn.Dropped counts the messages beyond. After the
// Stop of a Subscription, a Service or a Reader has returned, its callback does not run
// again. Stop must not be called from the callback.
package natsbus
