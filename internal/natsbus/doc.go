// Package natsbus is Duly on NATS: the only package that knows subjects, headers,
// streams and encodings (version 1 of the wire, docs/decisions/002-wire.md). It
// moves bytes and decides nothing. Roles do not import it: the wiring gives its
// methods to the ports they declare, so it speaks in values of internal/core and
// in callbacks.
//
// # A connection
//
//	Dial(ctx, Options) (*Conn, error)        waits for a server, checks it, reconnects for ever
//	Wrap(nc, logger, Names) (*Conn, error)   on somebody else's connection, unchecked
//	NewNames(namespace) (Names, error)       every subject, stream and bucket; Conn.Names
//	Conn.NATS, MaxPayload, Connected, Dropped, Close
//	Conn.Setup(ctx, StreamConfig) (Ready, error), Conn.Identity(ctx), Conn.Closed, Conn.Bucket
//	Conn.Guard(ctx)                          makes again what is lost; Conn.Trouble says what is not well
//	Conn.MakeRoomTasks, MakeRoomControl      of what every partition has committed
//
// # Doors (ingest)
//
//	Conn.ServeSubmit(func(*SubmitRequest)); SubmitRequest.Accept, Reject
//	Conn.PublishPack(partition, subs, done); BusyError, ErrBusy
//	Names.CheckReplyTo, PartitionOf, PackedSize
//	Conn.ServeAsk(func(*AskRequest), func(*ReadRequest)); Conn.PublishControl(ctx, partition, *core.Control)
//	Conn.ServePlans, AnnouncePlans, OnPlansChanged
//
// # Partitions (scheduler)
//
//	Conn.ReadTasks, Conn.ReadControl → *Reader: Stop, Reset; TaskMessage.Ack
//	Doors.Decode (task stream), DecodeControl (control stream)
//	Conn.SendCommand(*core.Command); Conn.ServeReplies(partition, reply, unserved)
//	Conn.TellEnded(endings, done), TellRefused, Notify, Live, Dead
//
// # Agents
//
//	Conn.ServeCommands(agent, func(*CommandRequest)) → *Service: Stop
//	CommandRequest.Command, Respond, Fail, Reply
//
// # Membership
//
//	Conn.NewLease(key, value, ttl) → *Lease: Renew, Held, Release
//	Conn.WatchNodes(ctx, func(live []string))
//
// # Clients
//
//	Names.SubmitSubject, InSubject; SubmitHeaders, DecodeSubmitAnswer, RefusedError
//	Names.AskSubject, SubjectPlansApply; AppendControl, EncodePlan, DecodePlanAnswer
//	Conn.OnLive, Conn.OnStatus; DecodeStatus, DecodeEndings
//
// # What a callback may do
//
// Each subscription has one goroutine. A callback that blocks holds back its own
// subscription only, and a bounded amount waits behind it; Conn.Dropped counts
// what found no room. After the Stop of a subscription, a Service or a Reader has
// returned, its callback does not run again. Stop must not be called from it.
package natsbus
