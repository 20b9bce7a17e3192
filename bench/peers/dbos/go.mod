module duly.dev/duly/bench/peers/dbos

go 1.26.0

replace (
	duly.dev/duly => ../../..
	duly.dev/duly/bench/peers/harness => ../harness
)

require (
	duly.dev/duly/bench/peers/harness v0.0.0
	github.com/dbos-inc/dbos-transact-golang v1.4.0
	github.com/jackc/pgx/v5 v5.12.0
)

require (
	duly.dev/duly v0.0.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	github.com/jackc/pgerrcode v0.0.0-20250907135507-afb5586c32a6 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
