package ingest

// outcomeAccepted is the outcome of a submission that is stored.
const outcomeAccepted = "accepted"

// outcomes are the causes in a word each.
var outcomes = map[int]string{
	CauseTypeName: "type_name", CauseTypeUnknown: "type_unknown", CauseIDName: "id_name", causeInputJSON: "input_json", causeInputText: "input_text",
	CauseInputSize: "input_size", causeCompleteByForm: "complete_by_form", causeCompleteByPast: "complete_by_past", causeCompleteByFar: "complete_by_far",
	causeReplyTo: "reply_to", causeVersionForm: "version_form", CauseVersionUnknown: "version_unknown", CauseFull: "door_full", CauseBacklog: "backlog",
	causeUnknownMany: "unknown_many", CauseLogDown: "stream_down", causeLogFull: "stream_full", causeOutcome: "unknown", CauseStopping: "stopping",
	CausePlans: "plans", CauseUndecided: "undecided", CauseMethod: "method", CauseNotFound: "not_found", CauseConflict: "conflict", CauseQuery: "query", CauseStore: "store", CauseBody: "body",
	CauseOtherType: "other_type", CauseState: "state", CauseLabels: "labels", causeDeprecated: "deprecated", CauseInputSchema: "input_schema",
	causeStartAtForm: "start_at_form", causeStartAtFar: "start_at_far", causeStartAtAfter: "start_at_after", CauseHeader: "header", CauseNoActor: "no_actor", CauseForbidden: "forbidden",
	CauseNotServed: "not_served", causeNoTime: "no_time",
}

// Outcomes are the submissions of a door by what was answered: outcomeAccepted, or the cause in a word. Those that did
// not occur are left out.
func (s *Stats) Outcomes() map[string]int64 {
	all := map[string]int64{outcomeAccepted: s.Accepted}
	for cause, n := range s.Refused {
		word := outcomes[cause]
		if word == "" {
			word = "other"
		}
		all[word] += n
	}
	return all
}
