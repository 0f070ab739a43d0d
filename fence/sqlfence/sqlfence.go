package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/fence"
)

// ErrNotClaimed is fence.ErrNotClaimed: the token is above the mark, or nothing was ever
// claimed. Assert and Do return it, and nothing was changed.
var ErrNotClaimed = fence.ErrNotClaimed

// ErrUnknown is fence.ErrUnknown: the answer to a commit was lost. Read the data again
// under the same token, and repeat the write if the write is not there.
var ErrUnknown = fence.ErrUnknown

// MaxResource is the longest name of a resource, in bytes.
const MaxResource = 255

// A LimitError refuses a name or a token. Nothing was changed, and nothing was sent to
// the database.
type LimitError struct {
	Field string // "Table.Name", "resource", "token", …
	Limit string // for example "1 to 255 bytes of UTF-8 without NUL"
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("sqlfence: %s: want %s", e.Field, e.Limit)
}

// A Dialect is a database's way of writing SQL.
type Dialect uint8

// The dialects. MySQL is MariaDB's too. SQLite is 3.35 or later.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// A Table says where the marks are kept. Names consist of letters, digits and _, begin
// with no digit, and have 63 bytes at most; Name may have a schema before a dot.
type Table struct {
	Name     string // the table's; "" for wardmote_fence
	Resource string // the column that names the resource, a unique key; "" for resource
	Token    string // the column with the mark, a signed 64-bit integer; "" for token

	// InRow says that the table holds the protected rows. Claim then inserts nothing,
	// and fails with ErrNoRow where there is no row.
	InRow bool
}

// ErrNoRow refuses a claim of a row that does not exist, by a guard with Table.InRow.
var ErrNoRow = errors.New("sqlfence: no such row")

// A Guard has the statements for one table. A Guard may be used from any goroutine, with
// any number of databases.
type Guard struct {
	dialect Dialect
	table   Table

	schema string
	claim  string // PostgreSQL, SQLite: returns the token if admitted; MySQL: raises the mark
	read   string // the mark, after a refusal
	locked string // MySQL: the mark after the claim, by a read that sees the present
	assert string // the mark, held until the transaction ends
	hold   string // SQLite: changes one row if the mark is the token, and holds the mark; else ""

	highest string // the highest mark
}

// New returns a guard for a table, or a *LimitError. New does not touch a database.
func New(d Dialect, t Table) (*Guard, error) {
	if d < PostgreSQL || d > SQLite {
		return nil, &LimitError{"Dialect", "PostgreSQL, MySQL or SQLite"}
	}
	if t.Name == "" {
		t.Name = "wardmote_fence"
	}
	if t.Resource == "" {
		t.Resource = "resource"
	}
	if t.Token == "" {
		t.Token = "token"
	}
	schema, name, qualified := strings.Cut(t.Name, ".")
	if !isName(schema) || qualified && !isName(name) {
		return nil, &LimitError{"Table.Name", wantName}
	}
	if !isName(t.Resource) {
		return nil, &LimitError{"Table.Resource", wantName}
	}
	if !isName(t.Token) {
		return nil, &LimitError{"Table.Token", wantName}
	}
	g := &Guard{dialect: d, table: t}
	g.write()
	return g, nil
}

const wantName = "1 to 63 letters, digits and _, no digit first"

// isName reports whether s can stand in SQL without quotes of any kind. Words that a
// dialect reserves are refused by the database itself.
func isName(s string) bool {
	if s == "" || len(s) > 63 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for _, c := range []byte(s) {
		if c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// write writes the statements.
func (g *Guard) write() {
	one, two := "?", "?" // the resource, the token
	if g.dialect == PostgreSQL {
		one, two = "$1", "$2"
	}
	named := func(text string) string {
		return strings.NewReplacer("{table}", g.table.Name, "{resource}", g.table.Resource, "{token}", g.table.Token,
			"$one", one, "$two", two).Replace(text)
	}
	g.read = named("SELECT {token} FROM {table} WHERE {resource} = $one")
	g.highest = named("SELECT COALESCE(MAX({token}), 0) FROM {table}")
	switch g.dialect {
	case PostgreSQL:
		g.schema = "CREATE TABLE IF NOT EXISTS {table} ({resource} VARCHAR(255) NOT NULL PRIMARY KEY, {token} BIGINT NOT NULL)"
		g.claim = `INSERT INTO {table} AS f ({resource}, {token}) VALUES ($one, $two)
ON CONFLICT ({resource}) DO UPDATE SET {token} = EXCLUDED.{token} WHERE f.{token} <= EXCLUDED.{token}
RETURNING {token}`
		// Not KEY SHARE: a claim does not wait for KEY SHARE.
		g.assert = g.read + " FOR SHARE"
		if g.table.InRow {
			g.claim = "UPDATE {table} SET {token} = $two WHERE {resource} = $one AND {token} <= $two RETURNING {token}"
			g.assert = g.read + " FOR NO KEY UPDATE" // the write wants the row itself
		}
	case MySQL:
		// Bytes: collations of texts call different names equal.
		g.schema = "CREATE TABLE IF NOT EXISTS {table} ({resource} VARBINARY(255) NOT NULL PRIMARY KEY, {token} BIGINT NOT NULL) ENGINE=InnoDB"
		g.claim = "INSERT INTO {table} ({resource}, {token}) VALUES ($one, $two) ON DUPLICATE KEY UPDATE {token} = GREATEST({token}, VALUES({token}))"
		g.locked = g.read + " FOR UPDATE"
		g.assert = g.read + " LOCK IN SHARE MODE"
		if g.table.InRow {
			g.claim = "UPDATE {table} SET {token} = GREATEST({token}, $two) WHERE {resource} = $one"
			g.assert = g.read + " FOR UPDATE"
		}
	case SQLite:
		// Not WITHOUT ROWID: hold would write a page of such a table.
		g.schema = "CREATE TABLE IF NOT EXISTS {table} ({resource} TEXT NOT NULL PRIMARY KEY, {token} INTEGER NOT NULL)"
		g.claim = `INSERT INTO {table} ({resource}, {token}) VALUES ($one, $two)
ON CONFLICT ({resource}) DO UPDATE SET {token} = excluded.{token} WHERE {token} <= excluded.{token}
RETURNING {token}`
		// An update takes the write lock of the database file, and a select does not.
		// After a select, a transaction that writes to another attached file could commit
		// although a later holder has claimed. If mark and data are in one file, a select
		// is safe, but under contention SQLite often refuses the write that follows.
		g.assert = "UPDATE {table} SET {token} = {token} WHERE {resource} = $one RETURNING {token}"
		// Without RETURNING: in SQLite RETURNING costs more than the update.
		g.hold = named("UPDATE {table} SET {token} = {token} WHERE {resource} = $one AND {token} = $two")
		if g.table.InRow {
			g.claim = "UPDATE {table} SET {token} = ?2 WHERE {resource} = ?1 AND {token} <= ?2 RETURNING {token}"
		}
	}
	if g.table.InRow {
		g.schema = ""
	}
	g.schema, g.claim, g.locked, g.assert = named(g.schema), named(g.claim), named(g.locked), named(g.assert)
}

// Schema returns the statement that creates the table unless it exists. With
// Table.InRow Schema returns "": add the column to your own table, as BIGINT NOT NULL
// DEFAULT 0 (SQLite: INTEGER).
func (g *Guard) Schema() string { return g.schema }

// ClaimSQL returns the statement of Claim, for callers without database/sql. Its
// parameters are the resource and the token; MySQL's with Table.InRow are the token and
// the resource.
//
// PostgreSQL and SQLite: the claim is admitted if the statement returns a row. MySQL:
// run the statement and then "SELECT token … FOR UPDATE" in one transaction, and roll
// back if the token read is not the claimed one.
func (g *Guard) ClaimSQL() string { return g.claim }

// AssertSQL returns the first statement of each write transaction, for callers without
// database/sql. Its parameter is the resource. The transaction may go on if the
// statement returns the writer's token. A larger token means that the writer is stale. A
// smaller token, or no row, means that the token was not claimed.
func (g *Guard) AssertSQL() string { return g.assert }

// HighestSQL returns the statement of Highest, for callers without database/sql. It has
// no parameters.
func (g *Guard) HighestSQL() string { return g.highest }

// Highest returns the highest mark of all resources, or zero if there is none. It waits
// for no transaction, so a claim that is under way may be missing. Highest reads every
// mark: where there are many rows and no index on the token, it takes a while.
//
// The next cluster should grant no token twice. So give Highest to the members:
//
//	cfg.Recovery.TokenFloor = func(ctx context.Context) (fence.Token, error) { return guard.Highest(ctx, db) }
//
// Ask the database that takes the claims: a replica may be behind. Highest changes
// nothing, and fails with the error of the database or of ctx.
func (g *Guard) Highest(ctx context.Context, db *sql.DB) (fence.Token, error) {
	var mark int64
	if err := db.QueryRowContext(ctx, g.highest).Scan(&mark); err != nil {
		return 0, fmt.Errorf("sqlfence: the highest mark: %w", err)
	}
	return fence.Token(max(mark, 0)), nil
}

// Claim raises the mark of the resource to t, and waits for the write transactions of
// the earlier holder. Call Claim once for each grant, before the first read. Claim admits
// a token equal to the mark, so that a caller can repeat its claim.
//
// Claim fails with a *fence.StaleError if a higher token was claimed, with
// fence.ErrUnfenced for token zero, with a *LimitError for a bad name, and with ErrNoRow;
// in all these cases nothing was changed. With any other error, ctx's for example, the
// mark may be raised, and the caller may claim again. Serialization failures, deadlocks
// and a busy database are tried again until ctx ends.
func (g *Guard) Claim(ctx context.Context, db *sql.DB, resource string, t fence.Token) error {
	if err := check(resource, t); err != nil {
		return err
	}
	return again(ctx, func() error {
		if g.dialect == MySQL {
			return g.claimMySQL(ctx, db, resource, t)
		}
		var mark int64
		err := db.QueryRowContext(ctx, g.claim, resource, int64(t)).Scan(&mark)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		err = db.QueryRowContext(ctx, g.read, resource).Scan(&mark)
		if errors.Is(err, sql.ErrNoRows) && g.table.InRow {
			return ErrNoRow
		}
		if err != nil {
			return err
		}
		return &fence.StaleError{Token: t, Seen: fence.Token(mark)}
	})
}

// claimMySQL claims and reads the mark back, because MySQL reports "0 rows affected" for
// a stale claim and also for a repeated claim.
func (g *Guard) claimMySQL(ctx context.Context, db *sql.DB, resource string, t fence.Token) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit: nothing
	params := []any{resource, int64(t)}
	if g.table.InRow {
		params = []any{int64(t), resource}
	}
	claim, args := g.inline(g.claim, params...)
	if _, err := tx.ExecContext(ctx, claim, args...); err != nil {
		return err
	}
	var mark int64
	locked, args := g.inline(g.locked, resource)
	if err := tx.QueryRowContext(ctx, locked, args...).Scan(&mark); err != nil {
		if errors.Is(err, sql.ErrNoRows) && g.table.InRow {
			return ErrNoRow
		}
		return err
	}
	if fence.Token(mark) != t {
		return &fence.StaleError{Token: t, Seen: fence.Token(mark)}
	}
	return tx.Commit()
}

// inline puts the parameters of a MySQL statement into its text, names as hexadecimal
// literals. By default MySQL's driver prepares each statement with parameters, at the
// cost of one more round trip. With Table.InRow the parameters stay: a literal of bytes
// would not use the index of a text column.
func (g *Guard) inline(statement string, params ...any) (string, []any) {
	if g.dialect != MySQL || g.table.InRow {
		return statement, params
	}
	for _, p := range params {
		text := fmt.Sprint(p)
		if name, ok := p.(string); ok {
			text = fmt.Sprintf("x'%x'", name)
		}
		statement = strings.Replace(statement, "?", text, 1)
	}
	return statement, nil
}

// Assert checks inside a transaction of the caller that t is the mark of the resource,
// and keeps every claim waiting until the transaction ends. Assert must be the first
// statement of the transaction. Assert fails like Do; roll back after any error.
func (g *Guard) Assert(ctx context.Context, tx *sql.Tx, resource string, t fence.Token) error {
	if err := check(resource, t); err != nil {
		return err
	}
	statement := g.assert
	if g.hold != "" {
		result, err := tx.ExecContext(ctx, g.hold, resource, int64(t))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err == nil && n > 0 {
			return nil
		}
		statement = g.read // the transaction has the write lock
	}
	var mark int64
	assert, args := g.inline(statement, resource)
	err := tx.QueryRowContext(ctx, assert, args...).Scan(&mark)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: %q has no mark", ErrNotClaimed, resource)
	case err != nil:
		return err
	case fence.Token(mark) > t:
		return &fence.StaleError{Token: t, Seen: fence.Token(mark)}
	case fence.Token(mark) < t:
		return fmt.Errorf("%w: the mark of %q is %d, below token %d", ErrNotClaimed, resource, mark, t)
	}
	return nil
}

// Do runs write inside a transaction that has asserted t, and commits. Serialization
// failures, deadlocks and a busy database roll back and run write again in a new
// transaction until ctx ends, so write must change nothing but the database.
//
// Write must return the error of every statement that fails. MySQL and SQLite end a
// transaction at some errors, a deadlock for example: a further statement of write would
// run alone, outside the transaction and without the fence.
//
// Do returns the error of write unchanged, after a rollback; a *fence.StaleError if a
// higher token was claimed; an error that matches ErrNotClaimed if t was not claimed;
// fence.ErrUnfenced for token zero; a *LimitError. In all these cases nothing was
// changed, and a stale token stays stale: end the grant. An error that matches
// ErrUnknown says that the answer to the commit was lost. Any other error is the
// database's or ctx's, and nothing was changed.
//
// A panic of write rolls back and goes on.
func (g *Guard) Do(ctx context.Context, db *sql.DB, resource string, t fence.Token, write func(tx *sql.Tx) error) error {
	return again(ctx, func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after a commit: nothing
		if err := g.Assert(ctx, tx, resource, t); err != nil {
			return err
		}
		if err := write(tx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := tx.Commit(); {
		case err == nil, answered(err):
			return err
		default:
			return fmt.Errorf("sqlfence: %w: %w", ErrUnknown, err)
		}
	})
}

// check returns the refusal of a name or a token.
func check(resource string, t fence.Token) error {
	switch {
	case t == 0:
		return fence.ErrUnfenced
	case t > math.MaxInt64:
		return &LimitError{"token", fmt.Sprintf("at most %d, the largest signed 64-bit integer", int64(math.MaxInt64))}
	case resource == "" || len(resource) > MaxResource || !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return &LimitError{"resource", fmt.Sprintf("1 to %d bytes of UTF-8 without NUL", MaxResource)}
	}
	return nil
}

// The pauses between two tries of a transaction.
const (
	firstPause = time.Millisecond
	lastPause  = 100 * time.Millisecond
)
