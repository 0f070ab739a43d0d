package cluster_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/sqlfence"
)

// The database that takes the claims tells the next cluster how high the tokens were.
func ExampleRecovery() {
	var (
		db  *sql.DB // opened by the program
		cfg cluster.Config
	)
	guard, err := sqlfence.New(sqlfence.PostgreSQL, sqlfence.Table{})
	if err != nil {
		log.Fatal(err)
	}
	cfg.Recovery.TokenFloor = func(ctx context.Context) (fence.Token, error) {
		return guard.Highest(ctx, db)
	}
}

// The highest token of a file is a TokenFloor as it is.
func ExampleRecovery_file() {
	var cfg cluster.Config
	file, err := fence.OpenFile("ledger.fence")
	if err != nil {
		log.Fatal(err)
	}
	cfg.Recovery.TokenFloor = file.Highest
}
