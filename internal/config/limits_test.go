package config

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// limits are the values of each bounded setting that are taken and those that
// are not: at its limits and beyond them, zero, negative and absurd.
var limits = map[string]struct{ taken, refused []any }{
	"Roles":                 {[]any{[]string{"ingest"}, Roles}, []any{[]string(nil), []string{""}, []string{"cook"}}},
	"NodeName":              {[]any{"n", strings.Repeat("n", 64)}, []any{".", "a b", "a\x00", strings.Repeat("n", 65), strings.Repeat("n", 10<<20)}},
	"Namespace":             {[]any{"", "n", strings.Repeat("n", 32)}, []any{".", "N", "1", "n.n", "n\x00", strings.Repeat("n", 33), strings.Repeat("n", 10<<20)}},
	"Partitions":            {[]any{1, 4096}, []any{0, -1, 4097, math.MaxInt, math.MinInt}},
	"TaskStreams":           {[]any{0, 1, 16}, []any{-1, 17, math.MaxInt}},
	"Shards":                {[]any{1, 64}, []any{0, -1, 65, math.MaxInt}},
	"InFlight":              {[]any{1, 1 << 20}, []any{0, -1, 1<<20 + 1, math.MaxInt}},
	"AgentWindow":           {[]any{1, 1 << 20}, []any{0, -1, 1<<20 + 1, math.MaxInt}},
	"CommitGap":             {[]any{time.Duration(0), -time.Second, time.Second}, []any{time.Second + 1, time.Duration(math.MaxInt64)}},
	"ScanInterval":          {[]any{10 * time.Millisecond, 3 * time.Second}, []any{10*time.Millisecond - 1, 3*time.Second + 1, time.Duration(0), -time.Second, time.Duration(math.MaxInt64)}},
	"Lease":                 {[]any{2 * time.Second, time.Hour}, []any{time.Second - 1, time.Hour + 1, time.Duration(0), -time.Second, time.Duration(math.MaxInt64)}},
	"Drain":                 {[]any{time.Duration(1), time.Hour}, []any{time.Duration(0), -time.Second, time.Hour + 1, time.Duration(math.MaxInt64)}},
	"ReplyTo":               {[]any{[]string(nil), []string{"a."}, make64("a.")}, []any{[]string{""}, []string{"a", ""}, append(make64("a."), "b.")}},
	"RetainDetail":          {[]any{time.Duration(0), time.Duration(1), time.Duration(math.MaxInt64)}, []any{time.Duration(-1), time.Duration(math.MinInt64)}},
	"NATSCert":              {[]any{""}, []any{"c.pem"}}, // without NATSKey
	"NATSKey":               {[]any{""}, []any{"k.pem"}},
	"CertClients":           {nil, []any{[]string{"a"}}}, // without ClientCA
	"CertViewers":           {nil, []any{[]string{"a"}}},
	"CertOperators":         {nil, []any{[]string{"a"}}},
	"CertAdmins":            {nil, []any{[]string{"a"}}},
	"RetainAudit":           {[]any{time.Duration(0), 24 * time.Hour, time.Duration(math.MaxInt64)}, []any{time.Duration(-1), 24*time.Hour - 1, time.Duration(1), time.Duration(math.MinInt64)}},
	"RetainRow":             {[]any{time.Duration(0)}, []any{time.Duration(1), time.Duration(-1), time.Duration(math.MinInt64)}}, // without RetainDetail
	"StreamMaxAge":          {[]any{time.Duration(0), time.Second, time.Duration(math.MaxInt64)}, []any{time.Duration(1), time.Second - 1, -time.Second}},
	"Memory":                {[]any{int64(0), int64(MemoryLeast), int64(math.MaxInt64)}, []any{int64(-1), int64(1), int64(MemoryLeast - 1), int64(math.MinInt64)}},
	"RecentBytes":           {[]any{int64(0), int64(1), int64(96 << 20)}, []any{int64(-1), int64(96<<20 + 1), int64(math.MinInt64)}},
	"StreamMaxBytes":        {[]any{int64(0), int64(1), int64(math.MaxInt64)}, []any{int64(-1), int64(math.MinInt64)}},
	"StreamControlMaxBytes": {[]any{int64(0), int64(1), int64(math.MaxInt64)}, []any{int64(-1), int64(math.MinInt64)}},
	"StreamEventsMaxBytes":  {[]any{int64(0), int64(1), int64(math.MaxInt64)}, []any{int64(-1), int64(math.MinInt64)}},
	"StreamDeadMaxBytes":    {[]any{int64(0), int64(1), int64(math.MaxInt64)}, []any{int64(-1), int64(math.MinInt64)}},
	"StreamKeep":            {[]any{time.Duration(0), time.Duration(1), time.Duration(math.MaxInt64)}, []any{time.Duration(-1), time.Duration(math.MinInt64)}},
	"OTLPEndpoint":          {[]any{"", "http://c:4318", "https://c"}, []any{"c:4318", "http://", "ftp://c", "http://u:p@c"}},
	"StreamReplicas":        {[]any{1, 5}, []any{0, -1, 6, math.MaxInt}},
	"Auth":                  {[]any{"", AuthOff, AuthToken}, []any{"x", AuthOIDC, strings.Repeat("x", 100)}},
	"URL":                   {[]any{"", "https://ops.example.org", "http://ops/duly"}, []any{"ops", "ftp://ops", "https://", "https://a@ops", "https://ops?x", "\x00"}},
	"Hosts":                 {[]any{[]string(nil), []string{"a"}, make64("a")}, []any{[]string{""}, append(make64("a"), "b")}},
	"TLSCert":               {[]any{""}, []any{"cert.pem"}},  // without TLSKey
	"ChainKey":              {[]any{""}, []any{"chain.key"}}, // without Chain
	"TLSKey":                {[]any{""}, []any{"key.pem"}},
	"OIDCViewers":           {[]any{[]string(nil), make64("a")}, []any{[]string{""}, append(make64("a"), "b")}},
	"OIDCOperators":         {[]any{[]string(nil), make64("a")}, []any{[]string{""}, append(make64("a"), "b")}},
	"OIDCAdmins":            {[]any{[]string(nil), make64("a")}, []any{[]string{""}, append(make64("a"), "b")}},
	"Streams":               {[]any{0, 1, streamsMax}, []any{-1, streamsMax + 1, math.MaxInt}},
	"BulkRequests":          {[]any{0, 1, bulkRequestsMax}, []any{-1, bulkRequestsMax + 1, math.MaxInt}},
	"BulkLines":             {[]any{int64(0), int64(1), int64(bulkLinesMax)}, []any{int64(-1), int64(bulkLinesMax + 1), int64(math.MaxInt64)}},
	"BulkBytes":             {[]any{int64(0), int64(1), int64(bulkBytesMax)}, []any{int64(-1), int64(bulkBytesMax + 1), int64(math.MaxInt64)}},
	"BulkLineBytes":         {[]any{0, bulkLineMin, bulkLineMax}, []any{-1, bulkLineMin - 1, bulkLineMax + 1, math.MaxInt}},
	"BulkInFlight":          {[]any{0, 1, bulkInFlightMax}, []any{-1, bulkInFlightMax + 1, math.MaxInt}},
	"BulkHeldBytes":         {[]any{int64(0), int64(bulkHeldMin), int64(bulkHeldMax)}, []any{int64(-1), int64(bulkHeldMin - 1), int64(bulkHeldMax + 1)}},
	"BulkWait":              {[]any{time.Duration(0), bulkWaitMin, bulkWaitMax}, []any{time.Duration(-1), bulkWaitMin - 1, bulkWaitMax + 1}},
	"BooksInterval":         {[]any{time.Duration(0), booksIntervalMin, booksIntervalMax}, []any{time.Duration(-1), booksIntervalMin - 1, booksIntervalMax + 1}},
	"BooksWindow":           {[]any{time.Duration(0), booksWindowMin, booksWindowMax}, []any{time.Duration(-1), booksWindowMin - 1, booksWindowMax + 1}},
	"BooksRate":             {[]any{0, 1, booksRateMax}, []any{-1, booksRateMax + 1, math.MaxInt}},
	"BooksPages":            {[]any{0, 1, booksPagesMax}, []any{-1, booksPagesMax + 1, math.MaxInt}},
	"BreakerShare":          {[]any{0, 1, 100}, []any{-1, 101, math.MaxInt, math.MinInt}},
	"BreakerCalls":          {[]any{0, 1, breakerCallsMax}, []any{-1, breakerCallsMax + 1, math.MaxInt}},
	"BreakerWindow":         {[]any{time.Duration(0), breakerWindowMin, breakerWindowMax}, []any{time.Duration(-1), breakerWindowMin - 1, breakerWindowMax + 1}},
	"BreakerOpen":           {[]any{time.Duration(0), breakerOpenMin, defaultBreakers.OpenMax}, []any{time.Duration(-1), breakerOpenMin - 1, defaultBreakers.OpenMax + 1, breakerOpenMax + 1}}, // without BreakerOpenMax
	"BreakerOpenMax":        {[]any{time.Duration(0), defaultBreakers.OpenFor, breakerOpenMax}, []any{time.Duration(-1), defaultBreakers.OpenFor - 1, breakerOpenMax + 1}},
	"Outbox": {[]any{[]string(nil), []string{"a=postgres://h/d"}, []string{"a=postgresql://u:p@h1,h2/d?search_path=x", "b=postgres://h/d"}},
		[]any{[]string{"a=postgres://h/d", "a=postgres://h/e"}, []string{"postgres://h/d"}, []string{""}, []string{"a b=postgres://h/d"}, []string{"a=mysql://h/d"}, []string{"a=sqlite:x"},
			[]string{outboxOwn}, []string{outboxOwn + "=postgres://h/d"}, make64("a=postgres://h/d")}}, // database: without DatabaseURL
	"TenantLabel":    {[]any{"", "t", strings.Repeat("t", 64)}, []any{"a.b", "t=", strings.Repeat("t", 65), strings.Repeat("t", 10<<20)}},
	"Weights":        {[]any{[]string(nil), []string{"class:high=1000", "type:a=1", "tenant:=1"}, manyWeights(weightsMax)}, []any{[]string{""}, []string{"type:a=0"}, []string{"type:a=1001"}, []string{"type:a=1", "type:a=1"}, []string{"type:" + strings.Repeat("a", 10<<20) + "=1"}, manyWeights(weightsMax + 1)}},
	"OutboxInterval": {[]any{time.Duration(0), outboxIntervalMin, outboxIntervalMax}, []any{time.Duration(-1), outboxIntervalMin - 1, outboxIntervalMax + 1}},
	"Agents":         {[]any{""}, []any{"agents.yaml"}}, // without the role
	"AgentsVariant":  {[]any{""}, []any{"canary"}},      // likewise
	"LiveInterval":   {[]any{time.Duration(0), liveIntervalMin, liveIntervalMax}, []any{time.Duration(-1), liveIntervalMin - 1, liveIntervalMax + 1}},
}

func manyWeights(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("type:t%d=1", i))
	}
	return all
}

func make64(s string) []string {
	all := make([]string, 64)
	for i := range all {
		all[i] = s
	}
	return all
}

// unbounded are settings that are judged where they are used: addresses, names of
// files, words that the command line has checked.
var unbounded = map[string]bool{
	"HTTPAddr": true, "Insecure": true, "OIDCIssuer": true, "OIDCClientID": true, "OIDCSecretFile": true, "OIDCClaim": true, "Now": true, "NATSDir": true, "SyncAlways": true, "NATSURL": true, "NATSContext": true, "NATSCreds": true, "NATSCA": true, "ClientCA": true, "NATSInbox": true, "DatabaseURL": true, "LogFormat": true, "LogLevel": true,
	"Level": true, "Version": true, "Chain": true, "AlertsAllowLocal": true, "AlertsSecretsDir": true,
}

// TestLimits walks every field of Config, so that a new one must be listed.
//
// covers: E21
func TestLimits(t *testing.T) {
	walk(t, reflect.TypeFor[Config](), func(f reflect.StructField) {
		l, bounded := limits[f.Name]
		if bounded == unbounded[f.Name] {
			t.Errorf("setting %s: say in limits or in unbounded what it takes", f.Name)
		}
		for _, value := range l.taken {
			if err := with(f, value).Validate(); err != nil {
				t.Errorf("%s %.100v: %v", f.Name, value, err)
			}
		}
		for _, value := range l.refused {
			err := with(f, value).Validate()
			if err == nil || !strings.HasPrefix(err.Error(), f.Tag.Get("name")+":") && !strings.Contains(err.Error(), f.Tag.Get("name")+" ") || len(err.Error()) > 2000 {
				t.Errorf("%s %.100v: error %.300v, want one that names %s", f.Name, value, err, f.Tag.Get("name"))
			}
		}
	})
}

func walk(t *testing.T, config reflect.Type, each func(reflect.StructField)) {
	t.Helper()
	for f := range config.Fields() {
		if f.Anonymous {
			walk(t, f.Type, each)
			continue
		}
		each(f)
	}
}

// with is a good configuration but for one field.
func with(f reflect.StructField, value any) *Config {
	c := good()
	reflect.ValueOf(&c).Elem().FieldByName(f.Name).Set(reflect.ValueOf(value))
	return &c
}

// TestOutboxes: each has a name and a URL, and an error shows no password.
func TestOutboxes(t *testing.T) {
	c := Config{Links: Links{DatabaseURL: "postgres://own/d"}, Relayed: Relayed{Outbox: []string{"shop=postgres://u:p@h/d?a=b", outboxOwn}}}
	all, err := c.Outboxes()
	if err != nil || len(all) != 2 || all[0] != (Outbox{"shop", "postgres://u:p@h/d?a=b"}) || all[1] != (Outbox{outboxOwn, "postgres://own/d"}) {
		t.Errorf("%v %v", all, err)
	}
	c.Outbox = []string{"postgres://u:secret@h/d?a=b"}
	if _, err := c.Outboxes(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a URL without a name: %v", err)
	}
	c.Outbox, c.DatabaseURL = []string{outboxOwn}, "sqlite:x"
	if _, err := c.Outboxes(); err == nil {
		t.Error("SQLite has an outbox")
	}
}
