module duly.dev/duly/bench/peers/harness

go 1.26.0

replace duly.dev/duly => ../../..

require (
	duly.dev/duly v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.44.0 // indirect
)
