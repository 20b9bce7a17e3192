package ingest

// OutcomeAccepted is the outcome of a submission that is stored.
const OutcomeAccepted = "accepted"

// outcomes are the causes in a word each.
var outcomes = map[int]string{
	CauseTypeName: "type_name", CauseTypeUnknown: "type_unknown", CauseIDName: "id_name", CauseInputJSON: "input_json", CauseInputText: "input_text",
	CauseInputSize: "input_size", CauseCompleteByForm: "complete_by_form", CauseCompleteByPast: "complete_by_past", CauseCompleteByFar: "complete_by_far",
	CauseReplyTo: "reply_to", CauseVersionForm: "version_form", CauseVersionUnknown: "version_unknown", CauseFull: "door_full", CauseBacklog: "backlog",
	CauseUnknownMany: "unknown_many", CauseLogDown: "stream_down", CauseLogFull: "stream_full", CauseOutcome: "unknown", CauseStopping: "stopping",
	CausePlans: "plans", CauseUndecided: "undecided", CauseMethod: "method", CauseNotFound: "not_found", CauseConflict: "conflict", CauseQuery: "query", CauseStore: "store", CauseBody: "body",
	CauseOtherType: "other_type", CauseState: "state", CauseLabels: "labels", CauseDeprecated: "deprecated", CauseInputSchema: "input_schema",
	CauseStartAtForm: "start_at_form", CauseStartAtFar: "start_at_far", CauseStartAtAfter: "start_at_after", CauseHeader: "header", CauseNoActor: "no_actor", CauseForbidden: "forbidden",
	CauseNotServed: "not_served", CauseNoTime: "no_time",
}

// Outcomes are the submissions of a door by what was answered: OutcomeAccepted, or the cause in a word. Those that did
// not occur are left out.
func (s *Stats) Outcomes() map[string]int64 {
	all := map[string]int64{OutcomeAccepted: s.Accepted}
	for cause, n := range s.Refused {
		word := outcomes[cause]
		if word == "" {
			word = "other"
		}
		all[word] += n
	}
	return all
}
