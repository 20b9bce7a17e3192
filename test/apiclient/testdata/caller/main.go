// Command caller calls every operation of the API at the address that it is given, by the client that was made.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"duly.dev/duly/test/apiclient/testdata/client"
)

func text(s string) *string { return &s }

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	c, err := client.NewClientWithResponses(os.Args[1], client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	failed := false
	check := func(what string, err error, good bool, body []byte) {
		if err != nil || !good {
			failed = true
			fmt.Printf("%s: %v %s\n", what, err, body)
		}
	}
	reason := client.ReasonRequest{Reason: "r"}
	until := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	as := "undone"

	submitted, err := c.SubmitTaskWithResponse(ctx, "order", &client.SubmitTaskParams{IdempotencyKey: text("c-1")}, map[string]any{"cents": 1999})
	check("submitTask", err, submitted != nil && submitted.JSON202 != nil && submitted.JSON202.Id == "c-1", body(submitted))
	repeated, err := c.SubmitTaskWithResponse(ctx, "order", &client.SubmitTaskParams{IdempotencyKey: text("t-5")}, map[string]any{"cents": 1999})
	check("submitTask again", err, repeated != nil && repeated.JSON200 != nil && repeated.JSON200.State == "error", body(repeated))
	put, err := c.PutTaskWithResponse(ctx, "order", "c-2", &client.PutTaskParams{DulyCompleteBy: text("30s")}, map[string]any{"cents": 1})
	check("putTask", err, put != nil && put.JSON202 != nil && put.JSON202.State == "pending", body(put))
	again, err := c.PutTaskWithResponse(ctx, "order", "t-5", nil, map[string]any{"cents": 1999})
	check("putTask again", err, again != nil && again.JSON200 != nil && again.JSON200.Id == "t-5", body(again))
	first := int64(1)
	many, err := c.SubmitTasksWithBody(ctx, &client.SubmitTasksParams{From: &first}, "application/x-ndjson", strings.NewReader(`{"type":"order","id":"c-3","input":1}`))
	var lines []byte // no JSON document: they are read as they come
	if err == nil {
		lines, err = io.ReadAll(many.Body)
		many.Body.Close()
	}
	check("submitTasks", err, strings.Contains(string(lines), `"outcome":"stored","id":"c-3"`) && strings.Contains(string(lines), `"summary":{"lines":1,`), lines)
	task, err := c.GetTaskWithResponse(ctx, "order", "t-5", nil)
	check("getTask", err, task != nil && task.JSON200 != nil && *task.JSON200.Why != "" && len(*task.JSON200.Steps) == 2, body(task))
	none, err := c.GetTaskWithResponse(ctx, "order", "nope", nil)
	check("getTask of none", err, none != nil && none.ApplicationproblemJSONDefault != nil && none.ApplicationproblemJSONDefault.Status == 404, body(none))
	deleted, err := c.DeleteTaskWithResponse(ctx, "order", "t-1", &client.DeleteTaskParams{Reason: text("r")})
	check("deleteTask", err, deleted != nil && deleted.JSON202 != nil && deleted.JSON202.Asked == "cancel", body(deleted))
	state := client.ListTasksParamsState("error")
	tasks, err := c.ListTasksWithResponse(ctx, &client.ListTasksParams{State: &state})
	check("listTasks", err, tasks != nil && tasks.JSON200 != nil && len(tasks.JSON200.Tasks) == 1, body(tasks))
	counts, err := c.CountTasksWithResponse(ctx)
	check("countTasks", err, counts != nil && counts.JSON200 != nil && len(counts.JSON200.Counts) == 6, body(counts))
	journal, err := c.GetJournalWithResponse(ctx, "order", "t-5", nil)
	check("getJournal", err, journal != nil && journal.JSON200 != nil && len(journal.JSON200.Records) == 3, body(journal))
	conditions, err := c.GetConditionsWithResponse(ctx, "order", "t-5")
	check("getConditions", err, conditions != nil && conditions.JSON200 != nil, body(conditions))
	exported, err := c.ExportTaskWithResponse(ctx, "order", "t-5")
	check("exportTask", err, exported != nil && exported.JSON200 != nil && (*exported.JSON200)["format"] == "duly-task/1", body(exported))

	for what, call := range map[string]func() (*client.Answer, []byte, error){
		"cancelTask": func() (*client.Answer, []byte, error) {
			r, err := c.CancelTaskWithResponse(ctx, "order", "t-1", nil, client.Action{})
			return r.JSON202, r.Body, err
		},
		"undoTask": func() (*client.Answer, []byte, error) {
			r, err := c.UndoTaskWithResponse(ctx, "order", "t-2", nil, client.Action{Reason: text("r")})
			return r.JSON202, r.Body, err
		},
		"resubmitTask": func() (*client.Answer, []byte, error) {
			r, err := c.ResubmitTaskWithResponse(ctx, "order", "t-5", &client.ResubmitTaskParams{IdempotencyKey: text("k")}, client.Action{})
			return r.JSON202, r.Body, err
		},
		"editTask": func() (*client.Answer, []byte, error) {
			r, err := c.EditTaskWithResponse(ctx, "order", "t-5", nil, client.Action{Reason: text("r"), Input: map[string]any{"cents": 2}})
			return r.JSON202, r.Body, err
		},
		"acceptTask": func() (*client.Answer, []byte, error) {
			r, err := c.AcceptTaskWithResponse(ctx, "order", "t-5", nil, client.Action{Reason: text("r"), Result: true})
			return r.JSON202, r.Body, err
		},
		"resolveTask": func() (*client.Answer, []byte, error) {
			r, err := c.ResolveTaskWithResponse(ctx, "order", "t-5", nil, client.Action{Reason: text("r"), As: &as})
			return r.JSON202, r.Body, err
		},
		"extendTask": func() (*client.Answer, []byte, error) {
			r, err := c.ExtendTaskWithResponse(ctx, "order", "t-1", nil, client.Action{Until: &until})
			return r.JSON202, r.Body, err
		},
		"migrateTask": func() (*client.Answer, []byte, error) {
			r, err := c.MigrateTaskWithResponse(ctx, "order", "t-1", nil, client.Action{Reason: text("r"), Version: ptr(int64(2))})
			return r.JSON202, r.Body, err
		},
		"signalTask": func() (*client.Answer, []byte, error) {
			r, err := c.SignalTaskWithResponse(ctx, "order", "t-person", nil, client.Action{Step: text("approve"), Result: true})
			return r.JSON202, r.Body, err
		},
	} {
		answer, data, err := call()
		check(what, err, answer != nil && answer.Outcome != "" && answer.Audit > 0, data)
	}

	// Streams go on: the first event is enough.
	for what, open := range map[string]func(context.Context) (*http.Response, error){
		"followEvents": func(ctx context.Context) (*http.Response, error) {
			return c.FollowEvents(ctx, &client.FollowEventsParams{LastEventID: text("0")})
		},
		"followTask": func(ctx context.Context) (*http.Response, error) {
			return c.FollowTask(ctx, "order", "t-1", &client.FollowTaskParams{LastEventID: text("0")})
		},
		"followLive": func(ctx context.Context) (*http.Response, error) { return c.FollowLive(ctx) },
	} {
		one, stop := context.WithCancel(ctx)
		resp, err := open(one)
		check(what, err, err == nil && resp.StatusCode == 200 && resp.Header.Get("Content-Type") == "text/event-stream", nil)
		stop()
	}

	loss, err := c.AcceptLossWithResponse(ctx, "OTHER", client.LossRequest{Reason: "r"})
	check("acceptLoss", err, loss != nil && loss.StatusCode() == 404, body(loss)) // there is no such stream

	failures, err := c.ListFailuresWithResponse(ctx, nil)
	check("listFailures", err, failures != nil && failures.JSON200 != nil && failures.JSON200.Groups[0].Tasks.N == 1, body(failures))
	failure, err := c.GetFailureWithResponse(ctx, "g1")
	check("getFailure", err, failure != nil && failure.JSON200 != nil && failure.JSON200.Example == "no money", body(failure))
	note, err := c.AddNoteWithResponse(ctx, "g1", client.NoteRequest{Text: "x"})
	check("addNote", err, note != nil && note.JSON201 != nil && note.JSON201.By == "the-admin", body(note))
	notes, err := c.ListNotesWithResponse(ctx, "g1", nil)
	check("listNotes", err, notes != nil && notes.JSON200 != nil && len(notes.JSON200.Notes) == 1, body(notes))

	preview, err := c.PreviewOperationWithResponse(ctx, client.PreviewRequest{Action: "resubmit", Selection: client.Selection{Group: text("g1")}})
	check("previewOperation", err, preview != nil && preview.JSON201 != nil && preview.JSON201.Token != "", body(preview))
	started, err := c.StartOperationWithResponse(ctx, client.StartRequest{Token: "preview-1", Reason: "r"})
	check("startOperation", err, started != nil && started.JSON201 != nil && started.JSON201.State == "running", body(started))
	changed, err := c.ChangeOperationWithResponse(ctx, "op1", client.ChangeRequest{Reason: "r", State: ptr(client.ChangeRequestState("paused"))})
	check("changeOperation", err, changed != nil && changed.JSON200 != nil && changed.JSON200.State == "paused", body(changed))
	operations, err := c.ListOperationsWithResponse(ctx, nil)
	check("listOperations", err, operations != nil && operations.JSON200 != nil && len(operations.JSON200.Operations) == 2, body(operations))
	operation, err := c.GetOperationWithResponse(ctx, "op1")
	check("getOperation", err, operation != nil && operation.JSON200 != nil && operation.JSON200.Tally.Done == 1, body(operation))
	members, err := c.ListMembersWithResponse(ctx, "op1", nil)
	check("listMembers", err, members != nil && members.JSON200 != nil && len(members.JSON200.Members) == 2, body(members))

	plans, err := c.ListPlansWithResponse(ctx, nil)
	check("listPlans", err, plans != nil && plans.JSON200 != nil && len(plans.JSON200.Plans[0].Steps) == 2, body(plans))
	plan, err := c.GetPlanWithResponse(ctx, "order", 1)
	check("getPlan", err, plan != nil && plan.JSON200 != nil && plan.JSON200.Name == "order", body(plan))
	agents, err := c.ListAgentsWithResponse(ctx, nil)
	check("listAgents", err, agents != nil && agents.JSON200 != nil && len(agents.JSON200.Agents) == 2, body(agents))
	breaker, err := c.ForceBreakerWithResponse(ctx, "payment.charge", client.BreakerRequest{State: "open", Until: &until, Reason: "r"})
	check("forceBreaker", err, breaker != nil && breaker.JSON200 != nil && breaker.JSON200.State == "open" && breaker.JSON200.By != nil, body(breaker))
	partitions, err := c.ListPartitionsWithResponse(ctx, nil)
	check("listPartitions", err, partitions != nil && partitions.JSON200 != nil && len(partitions.JSON200.Partitions) == 4, body(partitions))
	pinned, err := c.PinPartitionWithResponse(ctx, 1, client.PinRequest{Node: "n", Reason: "r"})
	check("pinPartition", err, pinned != nil && pinned.StatusCode() == 204, body(pinned))
	unpinned, err := c.UnpinPartitionWithResponse(ctx, 1, reason)
	check("unpinPartition", err, unpinned != nil && unpinned.StatusCode() == 204, body(unpinned))
	down, err := c.StepDownPartitionWithResponse(ctx, 1, reason)
	check("stepDownPartition", err, down != nil && down.StatusCode() == 204, body(down))
	limit, err := c.SetLimitWithResponse(ctx, "payment.charge", client.LimitRequest{Concurrent: ptr(int64(20)), Key: text("input.customer"), KeyConcurrent: ptr(int64(2)), Reason: "r"})
	check("setLimit", err, limit != nil && limit.JSON200 != nil && limit.JSON200.Concurrent != nil && *limit.JSON200.Concurrent == 20, body(limit))
	limits, err := c.ListLimitsWithResponse(ctx, nil)
	check("listLimits", err, limits != nil && limits.JSON200 != nil && len(limits.JSON200.Limits) == 1 && limits.JSON200.Limits[0].BusiestKeys != nil && len(*limits.JSON200.Limits[0].BusiestKeys) == 1, body(limits))
	unlimited, err := c.RemoveLimitWithResponse(ctx, "payment.charge", &client.RemoveLimitParams{Reason: text("r")})
	check("removeLimit", err, unlimited != nil && unlimited.StatusCode() == 204, body(unlimited))
	paused, err := c.SetPauseWithResponse(ctx, &client.SetPauseParams{IdempotencyKey: text("pause-1")}, client.PauseRequest{Type: text("order"), Reason: "r", Until: &until})
	check("setPause", err, paused != nil && paused.JSON201 != nil && paused.JSON201.Id != "", body(paused))
	pauses, err := c.ListPausesWithResponse(ctx, nil)
	check("listPauses", err, pauses != nil && pauses.JSON200 != nil && len(pauses.JSON200.Pauses) == 1, body(pauses))
	mended := "mended"
	lifted, err := c.LiftPauseWithResponse(ctx, paused.JSON201.Id, &client.LiftPauseParams{Reason: &mended})
	check("liftPause", err, lifted != nil && lifted.StatusCode() == 204, body(lifted))
	overview, err := c.GetOverviewWithResponse(ctx)
	check("getOverview", err, overview != nil && overview.JSON200 != nil && overview.JSON200.Errors.N == 1, body(overview))
	stats, err := c.GetStatsWithResponse(ctx)
	check("getStats", err, stats != nil && stats.JSON200 != nil && len(stats.JSON200.Samples) > 0, body(stats))

	books, err := c.GetBooksWithResponse(ctx, nil)
	check("getBooks", err, books != nil && books.JSON200 != nil && len(books.JSON200.Ghosts) == 2 && books.JSON200.Total == 2 && books.JSON200.Sentence != "", body(books))
	compared, err := c.CompareBooksWithResponse(ctx, client.CompareRequest{Reason: text("r")})
	check("compareBooks", err, compared != nil && compared.JSON202 != nil && compared.JSON202.Asked != nil, body(compared))
	repaired, err := c.RepairBooksWithResponse(ctx, nil, client.RepairRequest{Agent: "payment.charge", Effect: "t-4/charge/1", Repair: "undo", Reason: "r"})
	check("repairBooks", err, repaired != nil && repaired.JSON202 != nil && repaired.JSON202.Audit > 0, body(repaired))

	audit, err := c.ListAuditWithResponse(ctx, &client.ListAuditParams{Actor: text("the-admin")})
	check("listAudit", err, audit != nil && audit.JSON200 != nil && len(audit.JSON200.Entries) > 10, body(audit))
	made, err := c.CreateTokenWithResponse(ctx, client.TokenRequest{Name: "shop", Role: "client"})
	check("createToken", err, made != nil && made.JSON201 != nil && strings.HasPrefix(made.JSON201.Secret, "duly_"), body(made))
	tokens, err := c.ListTokensWithResponse(ctx, nil)
	check("listTokens", err, tokens != nil && tokens.JSON200 != nil && len(tokens.JSON200.Tokens) == 2, body(tokens))
	revoked, err := c.RevokeTokenWithResponse(ctx, made.JSON201.Token.Id, nil)
	check("revokeToken", err, revoked != nil && revoked.StatusCode() == 204, body(revoked))
	saved, err := c.PutViewWithResponse(ctx, "late", client.ViewBody{Query: "state=error"})
	check("putView", err, saved != nil && saved.StatusCode() == 204, body(saved))
	views, err := c.ListViewsWithResponse(ctx, nil)
	check("listViews", err, views != nil && views.JSON200 != nil && len(views.JSON200.Views) == 1, body(views))
	forgotten, err := c.DeleteViewWithResponse(ctx, "late")
	check("deleteView", err, forgotten != nil && forgotten.StatusCode() == 204, body(forgotten))
	level, err := c.GetLogLevelWithResponse(ctx)
	check("getLogLevel", err, level != nil && level.JSON200 != nil && level.JSON200.Level == "info", body(level))
	quiet, err := c.PutLogLevelWithResponse(ctx, client.Level{Level: "warn"})
	check("putLogLevel", err, quiet != nil && quiet.JSON200 != nil && quiet.JSON200.Level == "warn", body(quiet))
	stored, err := c.PutAlertChannelWithResponse(ctx, "mail", client.PutChannelRequest{Kind: "email", Server: text("smtps://mail"), From: text("a@b.c"), To: &[]string{"d@e.f"}, Username: text("u"), Secret: text("s")})
	check("putAlertChannel", err, stored != nil && stored.StatusCode() == 204, body(stored))
	channels, err := c.ListAlertChannelsWithResponse(ctx, nil)
	check("listAlertChannels", err, channels != nil && channels.JSON200 != nil && len(channels.JSON200.Channels) == 2, body(channels))
	channel, err := c.GetAlertChannelWithResponse(ctx, "mail")
	check("getAlertChannel", err, channel != nil && channel.JSON200 != nil && channel.JSON200.SecretStored != nil && *channel.JSON200.SecretStored, body(channel))
	tested, err := c.TestAlertChannelWithResponse(ctx, "ops")
	check("testAlertChannel", err, tested != nil && tested.JSON200 != nil && tested.JSON200.Channel == "ops", body(tested))
	dropped, err := c.DeleteAlertChannelWithResponse(ctx, "mail")
	check("deleteAlertChannel", err, dropped != nil && dropped.StatusCode() == 204, body(dropped))
	plansAndSchedules(ctx, c, check)
	if failed {
		os.Exit(1)
	}
}

// plansAndSchedules calls what there is on versions of plans, schedules, and chances.
func plansAndSchedules(ctx context.Context, c *client.ClientWithResponses, check func(what string, err error, good bool, body []byte)) {
	page, err := c.CheckPlanWithResponse(ctx, "order", client.CheckRequest{Version: ptr(int64(2)), Last: ptr(int64(10))})
	check("checkPlan", err, page != nil && page.JSON200 != nil && page.JSON200.InFlight > 0, body(page))
	applied, err := c.ApplyPlanWithBodyWithResponse(ctx, "application/json", strings.NewReader(`{"name":"parcel","version":1,"steps":[{"name":"send","agent":"mail"}]}`))
	check("applyPlan", err, applied != nil && applied.JSON200 != nil && applied.JSON200.Name == "parcel" && applied.JSON200.Version == 1, body(applied))
	marked, err := c.DeprecatePlanWithResponse(ctx, "order", 1, client.DeprecateRequest{Reason: "r"})
	check("deprecatePlan", err, marked != nil && marked.JSON200 != nil && marked.JSON200.Deprecated && marked.JSON200.Newest == 2, body(marked))
	forecast, err := c.GetForecastWithResponse(ctx)
	check("getForecast", err, forecast != nil && forecast.JSON200 != nil && forecast.JSON200.Sampled > 0, body(forecast))

	put, err := c.PutScheduleWithResponse(ctx, "hourly", &client.PutScheduleParams{Reason: text("r")}, client.Schedule{Type: "order", Every: text("1h"), Input: map[string]any{"cents": 1}})
	check("putSchedule", err, put != nil && put.JSON200 != nil && put.JSON200.Name == "hourly", body(put))
	schedules, err := c.ListSchedulesWithResponse(ctx, nil)
	check("listSchedules", err, schedules != nil && schedules.JSON200 != nil && len(schedules.JSON200.Schedules) == 2, body(schedules))
	one, err := c.GetScheduleWithResponse(ctx, "hourly")
	check("getSchedule", err, one != nil && one.JSON200 != nil && *one.JSON200.Every == "1h", body(one))
	held, err := c.PauseScheduleWithResponse(ctx, "hourly", client.ChangeScheduleRequest{Reason: "r"})
	check("pauseSchedule", err, held != nil && held.JSON200 != nil && held.JSON200.Paused != nil && *held.JSON200.Paused, body(held))
	on, err := c.ResumeScheduleWithResponse(ctx, "hourly", client.ChangeScheduleRequest{Reason: "r"})
	check("resumeSchedule", err, on != nil && on.JSON200 != nil && (on.JSON200.Paused == nil || !*on.JSON200.Paused), body(on))
	run, err := c.RunScheduleWithResponse(ctx, "hourly", &client.RunScheduleParams{IdempotencyKey: text("run-1")}, client.RunScheduleRequest{Reason: text("r")})
	check("runSchedule", err, run != nil && run.JSON202 != nil && strings.HasPrefix(run.JSON202.Task, "hourly-"), body(run))
	gone, err := c.DeleteScheduleWithResponse(ctx, "hourly", &client.DeleteScheduleParams{Reason: text("r")})
	check("deleteSchedule", err, gone != nil && gone.StatusCode() == 204, body(gone))
}

func ptr[T any](v T) *T { return &v }

// body is what was answered: the member Body that every answer of the client has.
func body(r any) []byte {
	v := reflect.ValueOf(r)
	if v.IsNil() {
		return nil
	}
	return v.Elem().FieldByName("Body").Bytes()
}
