package group_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"duly.dev/duly/dev/natsserver"
	"duly.dev/duly/group"
	"duly.dev/duly/internal/localpg"
)

// deposit adds up what is paid into accounts: the subject is payments.<account>, the data are cents.
func deposit(ctx context.Context, tx pgx.Tx, msgs []group.Msg) error {
	var batch pgx.Batch
	for _, m := range msgs {
		batch.Queue(`INSERT INTO accounts (name, cents) VALUES ($1, $2::TEXT::INT8)
			ON CONFLICT (name) DO UPDATE SET cents = accounts.cents + excluded.cents`, m.Subject, string(m.Data))
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// serve is a member; run as many as you like.
func serve(ctx context.Context, nc *nats.Conn, pool *pgxpool.Pool) error {
	if err := group.Setup(ctx, pool); err != nil {
		return err
	}
	return group.Run(ctx, nc, pool, "PAYMENTS", deposit,
		group.Name("deposits"),
		group.Partitioned(group.HashOfTokens(16, 2)), // an account's payments keep their order
		group.OnPoison(bury))
}

// bury keeps a message that cannot be handled, and goes on without it.
func bury(ctx context.Context, tx pgx.Tx, p group.Poison) (group.Verdict, error) {
	_, err := tx.Exec(ctx, `INSERT INTO dead (seq, subject, data, why) VALUES ($1, $2, $3, $4)`, int64(p.Msg.Seq), p.Msg.Subject, p.Msg.Data, p.Err.Error())
	return group.Skip, err
}

// What is paid in is added up exactly once, and what is no number is set aside.
func ExampleRun() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, pool, end, err := exampleServers(ctx)
	defer end()
	if err != nil {
		fmt.Println(err)
		return
	}
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "PAYMENTS", Subjects: []string{"payments.*"}})
	}
	for _, cents := range []string{"100", "20", "three"} {
		if err == nil {
			_, err = js.Publish(ctx, "payments.ada", []byte(cents))
		}
	}
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INT8 NOT NULL);
			CREATE TABLE dead (seq INT8 PRIMARY KEY, subject TEXT NOT NULL, data BYTEA NOT NULL, why TEXT NOT NULL)`)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	life, leave := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- serve(life, nc, pool) }()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		var cents, dead int
		err := pool.QueryRow(ctx, `SELECT COALESCE((SELECT cents FROM accounts), 0), (SELECT count(*) FROM dead)`).Scan(&cents, &dead)
		if dead == 1 || err != nil {
			tick.Stop()
			fmt.Println(cents, "cents,", dead, "set aside", err)
			break
		}
		<-tick.C
	}
	leave()
	fmt.Println(<-ended)
	// Output:
	// 120 cents, 1 set aside <nil>
	// <nil>
}

// exampleServers are a NATS server and a PostgreSQL of this process.
func exampleServers(ctx context.Context) (nc *nats.Conn, pool *pgxpool.Pool, end func(), err error) {
	var ends []func() error
	end = func() {
		for i := range ends {
			if err := ends[len(ends)-1-i](); err != nil {
				fmt.Println(err)
			}
		}
	}
	dir, err := os.MkdirTemp("", "group-example")
	if err != nil {
		return nil, nil, end, err
	}
	ends = append(ends, func() error { return os.RemoveAll(dir) })
	server, err := natsserver.Start(natsserver.Options{Dir: dir, SyncOff: true})
	if err != nil {
		return nil, nil, end, err
	}
	ends = append(ends, server.Shutdown)
	cluster, err := localpg.Start(localpg.Options{FsyncOff: true})
	if err != nil {
		return nil, nil, end, err
	}
	ends = append(ends, cluster.Stop)
	url, err := cluster.NewDatabase(ctx)
	if err != nil {
		return nil, nil, end, err
	}
	if pool, err = pgxpool.New(ctx, url); err != nil {
		return nil, nil, end, err
	}
	ends = append(ends, func() error { pool.Close(); return nil })
	if nc, err = nats.Connect(server.ClientURL()); err != nil {
		return nil, nil, end, err
	}
	ends = append(ends, func() error { nc.Close(); return nil })
	return nc, pool, end, nil
}
