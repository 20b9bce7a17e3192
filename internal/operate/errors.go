package operate

import "errors"

// ErrFenced says that another runner has taken the operation over since.
var ErrFenced = errors.New("operation taken over by another runner")

// Refusal is a request that is not carried out, with what to do about it.
type Refusal struct {
	Cause    int      // finer; 0: that of the code
	Code     int      // as HTTP: 400, 403, 404, 409, 413, 429, 503; 422 of a key that was used for something else
	Field    string   // that is wrong, if one is
	Detail   string   // one sentence: field, value and limit, or state and what is possible now
	Possible []Action // of 409: what is possible in the task's state
	Insist   string   // field of the request that has it done all the same; empty: none
	Taken    bool     // of 409 about a submission: its id is a task already, which is not the same
	RetryMS  int64    // of 429 and 503: when to ask again
}

// Error is the sentence.
func (r *Refusal) Error() string { return r.Detail }
