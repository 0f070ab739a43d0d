package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/wardmote/wardmote/fence/sqlfence"
	"github.com/wardmote/wardmote/locks"
)

// The account has the mark in a column of its own: fence is the highest token shown.
const (
	table  = "wardmote_example_account"
	schema = "CREATE TABLE " + table + ` (
		id      VARCHAR(64) NOT NULL PRIMARY KEY,
		balance BIGINT NOT NULL,
		paid    BIGINT NOT NULL,
		fence   BIGINT NOT NULL DEFAULT 0
	)`
	joint = "joint" // the id of the only account
)

// ErrTooLittle is returned for a withdrawal of more than there is.
var ErrTooLittle = errors.New("the account has too little money")

// A Bank pays from an account in a database.
type Bank struct {
	DB      *sql.DB
	Dialect sqlfence.Dialect
	Guard   *sqlfence.Guard // nil: no fence, for comparison
	Locks   *locks.Client

	// Between, if not nil, runs between the read and the write.
	Between func(ctx context.Context, l *locks.Lock, balance int) context.Context
}

// Withdraw pays amount, and returns what is left. If Withdraw fails nothing was paid,
// unless the error matches sqlfence.ErrUnknown: then the database did not answer, and the
// account must be read again.
func (b *Bank) Withdraw(ctx context.Context, amount int) (left int, err error) {
	paid := false
	err = b.Locks.Do(ctx, "account/"+joint, func(ctx context.Context, l *locks.Lock) error {
		// Claim before the first read: from here on no earlier holder can change the
		// account.
		if b.Guard != nil {
			if err := b.Guard.Claim(ctx, b.DB, joint, l.Token()); err != nil {
				return err
			}
		}
		balance, _, err := b.Read(ctx)
		if err != nil {
			return err
		}
		if balance < amount {
			return ErrTooLittle
		}
		// A garbage collector, a debugger or a virtual machine that moves may stop this
		// process here for any time. No check can come after that.
		if b.Between != nil {
			ctx = b.Between(ctx, l, balance)
		}
		left = balance - amount
		err = b.write(ctx, l, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, b.bind("UPDATE "+table+" SET balance = ?, paid = paid + ? WHERE id = ?"), left, amount, joint)
			return err
		})
		paid = err == nil
		return err
	})
	if paid {
		return left, nil // Do may tell of a loss after the commit, which undoes nothing
	}
	return 0, err
}

// write runs tx under the fence: the database compares the token and writes in one
// transaction.
func (b *Bank) write(ctx context.Context, l *locks.Lock, tx func(*sql.Tx) error) error {
	if b.Guard != nil {
		return b.Guard.Do(ctx, b.DB, joint, l.Token(), tx)
	}
	t, err := b.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // after a commit it does nothing
	if err := tx(t); err != nil {
		return err
	}
	return t.Commit()
}

// Read returns the balance and the sum that was paid.
func (b *Bank) Read(ctx context.Context) (balance, paid int, err error) {
	err = b.DB.QueryRowContext(ctx, b.bind("SELECT balance, paid FROM "+table+" WHERE id = ?"), joint).Scan(&balance, &paid)
	return balance, paid, err
}

// Open makes the account anew.
func (b *Bank) Open(ctx context.Context, balance int) error {
	if err := b.Close(ctx); err != nil {
		return err
	}
	if _, err := b.DB.ExecContext(ctx, schema); err != nil {
		return err
	}
	_, err := b.DB.ExecContext(ctx, b.bind("INSERT INTO "+table+" (id, balance, paid) VALUES (?, ?, 0)"), joint, balance)
	return err
}

// Close removes the account's table.
func (b *Bank) Close(ctx context.Context) error {
	_, err := b.DB.ExecContext(ctx, "DROP TABLE IF EXISTS "+table)
	return err
}

// bind numbers the parameters where the database wants numbers.
func (b *Bank) bind(statement string) string {
	for n := 1; b.Dialect == sqlfence.PostgreSQL && strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
	}
	return statement
}
