// Package wire is what Duly says on NATS, in version 1: every subject, stream, bucket,
// header and queue group, the encoding of every message, and their limits. It opens no connection and does
// not import the client of NATS, so that the author of a client in another language, or of a
// test kit for one, can read the whole protocol here. Package natsbus puts it on a connection;
// docs/decisions/002-wire.md says why it is as it is, and golden tests pin its bytes.
//
// # Names
//
//	NewNames(namespace) (Names, error)             of one installation; the zero value is "duly"
//	Names.SubmitSubject, InSubject, AskTypeSubject, SubjectPlansApply    what clients send to
//	Names.CommandSubject, BatchSubject, ReplySubject, ServiceName        what agents hear and answer
//	Names.LiveSubject, EventSubject                where statuses and endings are published
//	Names.Stream…, Bucket…, Pattern…, …Pattern     for streams, consumers and permissions
//	Names.Parse…                                   the parts of a subject
//	PartitionOf(id, partitions)                    the partition of a task, as the server computes it
//	Header…, Group…, Key…, Meta…                   headers, queue groups, keys, an agent's metadata
//
// # A client
//
//	DecodeSubmitAnswer, RefusedError                           submit at the request endpoint; its headers: package submit
//	AppendControl, Names.GetRequest, ListRequest               ask about tasks
//	DecodeTask, DecodePage                                     what the answers to those hold
//	EncodePlan, DecodePlanAnswer                               apply a plan
//	DecodeStatus, DecodeEndings                                watch tasks
//
// A submission has two ways in. The request endpoint (SubmitSubject) answers when the
// submission is stored. The stream endpoint (InSubject) is a subject of the task stream
// itself, for any JetStream client.
//
// # An agent
//
//	CommandDecoder, DecodeCommand, EncodeReply                 one command a message
//	DecodeBatchCommands, AppendBatchReply, BatchAnswerSubject  several; optional, see MetaBatch
//	Names.MayAnswer, IsBatchReply                              which reply subjects to accept
//
// A command's reply subject says which command it is, and ends with a token that only the
// receiver of the command knows. An agent answers there and need not read it.
//
// # A node
//
//	TaskDecoder, decodePack, AppendPack, AppendCompressedPack  submissions in the task stream
//	DecodeControl, DecodeAsk, DecodeQuery                      requests about tasks
//	AppendCommand, AppendBatchCommand                          commands to agents
//	Names.DecodeReply, EmptyReply, DecodeBatchReplies          replies
//	Signer                                                     the tokens of replies
//	AppendStatus, AppendEnding, BeginEvents                    statuses and endings
//	AppendAccepted, AppendRefused                              answers to clients
//	AppendWish, DecodeWish                                     where operators want partitions
//	Names.CheckReplyTo, CheckAnswer                            subjects that a request may name
//
// # Rules of the encodings
//
// JSON, but for answers, has a version in its member v. Unknown members of what is stored or
// sent to an agent are ignored, so that an older reader understands a newer writer; unknown
// members of a request that changes something are refused. Batches and packs are binary: a version byte,
// then records with their length in front. Decoders never allocate more than in proportion to
// what came; payloads are parts of the message, not copies.
package wire
