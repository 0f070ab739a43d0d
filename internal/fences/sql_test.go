//go:build unix

package fences

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
	"github.com/wardmote/wardmote/fence/sqlfence"
)

// A database is a server with a driver.
type database struct {
	name    string
	dialect sqlfence.Dialect
	driver  string
	dsn     func(tb testing.TB, address string) string
	server  *server // nil: a file
	marks   string  // the schema of the guard's table, with a dot
}

var databases = []database{
	{name: "PostgreSQL by pgx", dialect: sqlfence.PostgreSQL, driver: "pgx", server: postgres,
		dsn: func(_ testing.TB, address string) string {
			return "postgres://wardmote@" + address + "/postgres?sslmode=disable"
		}},
	{name: "PostgreSQL by pq", dialect: sqlfence.PostgreSQL, driver: "postgres", server: postgres,
		dsn: func(_ testing.TB, address string) string {
			return "postgres://wardmote@" + address + "/postgres?sslmode=disable"
		}},
	{name: "PostgreSQL, serializable", dialect: sqlfence.PostgreSQL, driver: "pgx", server: postgres,
		dsn: func(_ testing.TB, address string) string {
			return "postgres://wardmote@" + address + "/postgres?sslmode=disable&default_transaction_isolation=serializable"
		}},
	{name: "MariaDB", dialect: sqlfence.MySQL, driver: "mysql", server: mariadb,
		dsn: func(_ testing.TB, address string) string { return "root@tcp(" + address + ")/wardmote" }},
	{name: "MariaDB, read committed", dialect: sqlfence.MySQL, driver: "mysql", server: mariadb,
		dsn: func(_ testing.TB, address string) string {
			return "root@tcp(" + address + ")/wardmote?tx_isolation=%27READ-COMMITTED%27"
		}},
	{name: "SQLite", dialect: sqlfence.SQLite, driver: "sqlite",
		dsn: func(tb testing.TB, _ string) string {
			return "file:" + filepath.Join(tb.TempDir(), "db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"
		}},
	{name: "SQLite, rollback journal", dialect: sqlfence.SQLite, driver: "sqlite",
		dsn: func(tb testing.TB, _ string) string {
			return "file:" + filepath.Join(tb.TempDir(), "db") + "?_pragma=busy_timeout(10000)"
		}},
	{name: "SQLite, the marks in another file", dialect: sqlfence.SQLite, driver: "sqlite", marks: attached + ".",
		dsn: func(tb testing.TB, _ string) string {
			return "file:" + filepath.Join(tb.TempDir(), "db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&" + attached + "=1"
		}},
}

// attached is the name of a second file of an SQLite database, attached to each
// connection if the address has this parameter.
const attached = "marks"

func init() {
	sqlite.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, dsn string) error {
		path, parameters, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
		if !strings.HasSuffix(parameters, attached+"=1") {
			return nil
		}
		for _, statement := range []string{
			"ATTACH DATABASE '" + path + "." + attached + "' AS " + attached,
			"PRAGMA " + attached + ".journal_mode = wal",
		} {
			if _, err := conn.ExecContext(context.Background(), statement, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// open opens the database at the address.
func (d database) open(tb testing.TB, address string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.driver, d.dsn(tb, address))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (d database) address(tb testing.TB) string {
	tb.Helper()
	if d.server == nil {
		return ""
	}
	address := fmt.Sprintf("127.0.0.1:%d", d.server.require(tb))
	if d.dialect == sqlfence.MySQL {
		root, err := sql.Open("mysql", mysqlDSN(d.server.port))
		if err == nil {
			_, err = root.Exec("CREATE DATABASE IF NOT EXISTS wardmote CHARACTER SET utf8mb4")
			_ = root.Close()
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	return address
}

// A form is a way to keep the mark.
type form struct {
	name  string
	inRow bool
}

var forms = []form{{"guard table", false}, {"in the row", true}}

// forms returns the ways to keep marks in this database.
func (d database) forms() []form {
	if d.marks != "" {
		return forms[:1]
	}
	return forms
}

var keys atomic.Int64

// row is a protected row.
type row struct {
	guard *sqlfence.Guard
	db    *sql.DB
	form  form
	key   string
	read  string
	set   string
	unset string
	line  *line
}

func (r *row) Claim(ctx context.Context, t fence.Token) error {
	return r.guard.Claim(ctx, r.db, r.key, t)
}

func (r *row) Write(ctx context.Context, t fence.Token, value string) error {
	return r.change(ctx, t, r.set, value, r.key)
}

func (r *row) Delete(ctx context.Context, t fence.Token) error {
	return r.change(ctx, t, r.unset, r.key)
}

func (r *row) change(ctx context.Context, t fence.Token, statement string, args ...any) error {
	fencetest.Pause(ctx, "before the transaction")
	return r.guard.Do(ctx, r.db, r.key, t, func(tx *sql.Tx) error {
		fencetest.Pause(ctx, "after the assert")
		_, err := tx.ExecContext(ctx, statement, args...)
		fencetest.Pause(ctx, "before the commit")
		return err
	})
}

func (r *row) Read(ctx context.Context) (string, error) {
	var value string
	err := r.db.QueryRowContext(ctx, r.read, r.key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (r *row) Reopen(testing.TB) fencetest.Resource {
	return &row{r.guard, r.db, r.form, r.key, r.read, r.set, r.unset, nil}
}

// losing is a row behind a line, which can lose the answer to a commit.
type losing struct{ *row }

func (r losing) LoseAnswer() { r.line.lose.Store(true) }

// newRow returns a protected row without a value.
func (d database) newRow(tb testing.TB, db *sql.DB, f form) *row {
	tb.Helper()
	ctx := tb.Context()
	exec := func(statement string, args ...any) {
		tb.Helper()
		if _, err := db.ExecContext(ctx, d.bind(statement), args...); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
	r := &row{db: db, form: f, key: fmt.Sprint("doc/", keys.Add(1))}
	table := sqlfence.Table{}
	if d.marks != "" {
		table.Name = d.marks + "wardmote_fence"
	}
	key, value := "VARCHAR(255)", "VARCHAR(255)"
	if d.dialect == sqlfence.MySQL {
		key = "VARBINARY(255)"
	}
	if f.inRow {
		table = sqlfence.Table{Name: "doc_in_row", Resource: "id", Token: "fence", InRow: true}
		exec("CREATE TABLE IF NOT EXISTS doc_in_row (id " + key + " PRIMARY KEY, body " + value + " NOT NULL, fence BIGINT NOT NULL DEFAULT 0)")
		exec("INSERT INTO doc_in_row (id, body) VALUES (?, '')", r.key)
		r.read, r.set = "SELECT body FROM doc_in_row WHERE id = ?", "UPDATE doc_in_row SET body = ? WHERE id = ?"
		r.unset = "UPDATE doc_in_row SET body = '' WHERE id = ?" // a tombstone
	} else {
		exec("CREATE TABLE IF NOT EXISTS doc (body " + value + " NOT NULL, id " + key + " PRIMARY KEY)")
		r.read, r.unset = "SELECT body FROM doc WHERE id = ?", "DELETE FROM doc WHERE id = ?"
		r.set = "INSERT INTO doc (body, id) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
		if d.dialect == sqlfence.MySQL {
			r.set = "REPLACE INTO doc (body, id) VALUES (?, ?)"
		}
	}
	r.read, r.set, r.unset = d.bind(r.read), d.bind(r.set), d.bind(r.unset)
	guard, err := sqlfence.New(d.dialect, table)
	if err != nil {
		tb.Fatal(err)
	}
	if schema := guard.Schema(); schema != "" {
		exec(schema)
	}
	r.guard = guard
	return r
}

// bind numbers the parameters for PostgreSQL.
func (d database) bind(statement string) string {
	if d.dialect != sqlfence.PostgreSQL {
		return statement
	}
	for i := 1; strings.Contains(statement, "?"); i++ {
		statement = strings.Replace(statement, "?", fmt.Sprint("$", i), 1)
	}
	return statement
}

func TestDatabases(t *testing.T) {
	for _, d := range databases {
		for _, f := range d.forms() {
			t.Run(d.name+", "+f.name, func(t *testing.T) {
				address := d.address(t)
				if d.server == nil {
					fencetest.Run(t, func(tb testing.TB) fencetest.Resource { return d.newRow(tb, d.open(tb, ""), f) })
					return
				}
				l := newLine(t, address)
				db := d.open(t, l.address())
				fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
					r := d.newRow(tb, db, f)
					r.line = l
					return losing{r}
				})
			})
		}
	}
}

// The highest mark of a table is the token floor of the next cluster.
func TestTheHighestMark(t *testing.T) {
	for _, d := range databases {
		for _, f := range d.forms() {
			t.Run(d.name+", "+f.name, func(t *testing.T) {
				db := d.open(t, d.address(t))
				d.newRow(t, db, f)
				marks := d.marks + "wardmote_fence"
				if f.inRow {
					marks = "doc_in_row"
				}
				if _, err := db.ExecContext(t.Context(), "DELETE FROM "+marks); err != nil { // rows of earlier tests
					t.Fatal(err)
				}
				r := d.newRow(t, db, f)
				if got, err := r.guard.Highest(t.Context(), db); err != nil || got != 0 {
					t.Errorf("at first: %d, %v", got, err)
				}
				for _, token := range []fence.Token{1 << 53, math.MaxInt64} {
					if err := r.Claim(t.Context(), token); err != nil {
						t.Fatal(err)
					}
					if got, err := r.guard.Highest(t.Context(), db); err != nil || got != token {
						t.Errorf("after a claim of %d: %d, %v", token, got, err)
					}
				}
			})
		}
	}
}

// A line forwards connections to a server, and can lose the answer to a commit: the server
// gets the commit, and the connection breaks before the answer.
type line struct {
	listener net.Listener
	to       string
	lose     atomic.Bool
	conns    sync.WaitGroup
}

func newLine(tb testing.TB, to string) *line {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &line{listener: listener, to: to}
	l.conns.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.conns.Go(func() { l.forward(c) })
		}
	})
	tb.Cleanup(func() { _ = listener.Close(); l.conns.Wait() })
	return l
}

func (l *line) address() string { return l.listener.Addr().String() }

func (l *line) forward(client net.Conn) {
	server, err := net.Dial("tcp", l.to)
	if err != nil {
		_ = client.Close()
		return
	}
	var lost atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if strings.Contains(strings.ToLower(string(buffer[:n])), "commit") && l.lose.CompareAndSwap(true, false) {
				lost.Store(true)
			}
			if n > 0 {
				if _, err := server.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if lost.Load() || err != nil && !errors.Is(err, io.EOF) {
				return // the server has answered
			}
			if _, werr := client.Write(buffer[:n]); werr != nil || err != nil {
				return
			}
		}
	})
	both.Wait()
}
