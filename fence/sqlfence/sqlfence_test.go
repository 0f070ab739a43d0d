package sqlfence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
)

func newGuard(t *testing.T, d Dialect) *Guard {
	t.Helper()
	g, err := New(d, Table{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		dialect Dialect
		table   Table
		field   string
	}{
		{0, Table{}, "Dialect"},
		{SQLite + 1, Table{}, "Dialect"},
		{PostgreSQL, Table{Name: "a b"}, "Table.Name"},
		{PostgreSQL, Table{Name: "a.b.c"}, "Table.Name"},
		{PostgreSQL, Table{Name: "a."}, "Table.Name"},
		{PostgreSQL, Table{Name: ".a"}, "Table.Name"},
		{PostgreSQL, Table{Name: "1a"}, "Table.Name"},
		{PostgreSQL, Table{Name: long}, "Table.Name"},
		{MySQL, Table{Resource: "x; DROP TABLE y"}, "Table.Resource"},
		{MySQL, Table{Resource: "é"}, "Table.Resource"},
		{SQLite, Table{Token: `"token"`}, "Table.Token"},
		{SQLite, Table{Name: "app.fence", Resource: "Res_1", Token: "_t"}, ""},
	} {
		g, err := New(test.dialect, test.table)
		var limit *LimitError
		switch {
		case test.field == "" && err == nil:
		case !errors.As(err, &limit), limit.Field != test.field, g != nil:
			t.Errorf("New(%v, %+v): %v", test.dialect, test.table, err)
		}
	}
}

// A bad name or token is refused before anything is sent: there is no database here.
func TestBadResourcesAndTokensAreRefusedUnsent(t *testing.T) {
	g := newGuard(t, PostgreSQL)
	for _, test := range []struct {
		resource string
		token    fence.Token
		want     string
	}{
		{"a", 0, "fence: token 0 is no token"},
		{"", 1, "sqlfence: resource: want 1 to 255 bytes of UTF-8 without NUL"},
		{strings.Repeat("a", 256), 1, "sqlfence: resource: want 1 to 255 bytes of UTF-8 without NUL"},
		{"a\x00", 1, "sqlfence: resource: want 1 to 255 bytes of UTF-8 without NUL"},
		{"\xff", 1, "sqlfence: resource: want 1 to 255 bytes of UTF-8 without NUL"},
		{"a", 1 << 63, "sqlfence: token: want at most 9223372036854775807, the largest signed 64-bit integer"},
	} {
		for what, err := range map[string]error{
			"Claim":  g.Claim(t.Context(), nil, test.resource, test.token),
			"Assert": g.Assert(t.Context(), nil, test.resource, test.token),
		} {
			if err == nil || err.Error() != test.want {
				t.Errorf("%s(%q, %d): %v", what, test.resource, test.token, err)
			}
		}
	}
}

func TestTheStatements(t *testing.T) {
	g, err := New(PostgreSQL, Table{Name: "app.account", Resource: "id", Token: "fence", InRow: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ got, want string }{
		{newGuard(t, PostgreSQL).AssertSQL(), "SELECT token FROM wardmote_fence WHERE resource = $1 FOR SHARE"},
		{newGuard(t, MySQL).AssertSQL(), "SELECT token FROM wardmote_fence WHERE resource = ? LOCK IN SHARE MODE"},
		{newGuard(t, SQLite).AssertSQL(), "UPDATE wardmote_fence SET token = token WHERE resource = ? RETURNING token"},
		{g.Schema(), ""},
		{g.ClaimSQL(), "UPDATE app.account SET fence = $2 WHERE id = $1 AND fence <= $2 RETURNING fence"},
		{g.AssertSQL(), "SELECT fence FROM app.account WHERE id = $1 FOR NO KEY UPDATE"},
		{g.HighestSQL(), "SELECT COALESCE(MAX(fence), 0) FROM app.account"},
	} {
		if test.got != test.want {
			t.Errorf("%s\nwant %s", test.got, test.want)
		}
	}
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		g := newGuard(t, d)
		for _, s := range []string{g.Schema(), g.ClaimSQL(), g.AssertSQL(), g.HighestSQL()} {
			if s == "" || strings.ContainsAny(s, "{}") {
				t.Errorf("%v: %q", d, s)
			}
		}
	}
}

// In every dialect a claim leaves a higher mark as it is: by a condition, or by the larger of
// both.
func TestNoClaimLowersAMark(t *testing.T) {
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		for _, inRow := range []bool{false, true} {
			table := Table{}
			if inRow {
				table = Table{Name: "account", Resource: "id", Token: "token", InRow: true}
			}
			g, err := New(d, table)
			if err != nil {
				t.Fatal(err)
			}
			claim := strings.ToUpper(g.ClaimSQL())
			update := claim[strings.Index(claim, "UPDATE"):]
			condition := strings.Contains(update, "WHERE") && strings.Contains(update, "TOKEN <= ")
			if !condition && !strings.Contains(update, "GREATEST(TOKEN, ") {
				t.Errorf("%v, in the row: %v: a claim can lower the mark: %s", d, inRow, g.ClaimSQL())
			}
		}
	}
}

// Errors as the drivers return them.
type (
	stateError  string // pgx, lib/pq
	mysqlError  struct{ Number uint16 }
	sqliteError int                      // modernc: a method
	cgoError    struct{ Code cgoNumber } // mattn: a field
	cgoNumber   int
)

func (e stateError) Error() string    { return "state " + string(e) }
func (e stateError) SQLState() string { return string(e) }
func (e *mysqlError) Error() string   { return fmt.Sprint("number ", e.Number) }
func (e sqliteError) Error() string   { return fmt.Sprint("code ", int(e)) }
func (e sqliteError) Code() int       { return int(e) }
func (e cgoError) Error() string      { return fmt.Sprint("code ", e.Code) }

func TestWhichErrorsPass(t *testing.T) {
	for _, test := range []struct {
		err              error
		passes, answered bool
	}{
		{stateError("40001"), true, true},
		{stateError("40P01"), true, true},
		{stateError("55P03"), true, true},
		{stateError("40003"), true, false}, // statement completion unknown
		{stateError("23505"), false, true},
		{stateError("08006"), false, false},
		{stateError("57P01"), false, false},
		{&mysqlError{1213}, true, true},
		{&mysqlError{1205}, true, true},
		{&mysqlError{1020}, true, true},
		{&mysqlError{1062}, false, true},
		{&mysqlError{1029}, false, true}, // 5 in its lowest byte
		{sqliteError(5), true, true},
		{sqliteError(5 | 2<<8), true, true},
		{sqliteError(6), true, true},
		{sqliteError(10), false, false},
		{cgoError{5}, true, true},
		{cgoError{19}, false, false},
		{io.ErrUnexpectedEOF, false, false},
		{driver.ErrBadConn, false, false},
		{(*mysqlError)(nil), false, false},
	} {
		for _, err := range []error{test.err, fmt.Errorf("wrapped: %w", test.err)} {
			if test.err == (*mysqlError)(nil) && err != test.err {
				continue
			}
			if passes(err) != test.passes {
				t.Errorf("passes(%#v) = %v", err, !test.passes)
			}
			if answered(err) != test.answered {
				t.Errorf("answered(%#v) = %v", err, !test.answered)
			}
		}
	}
}

// A script is a database with prepared answers. The log has the calls.
type script struct {
	marks   []any   // by assert: an int64, an error, or nil for no row
	commits []error // by commit
	log     []string
}

func (s *script) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *script) Driver() driver.Driver                        { return nil }
func (s *script) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *script) Close() error                                 { return nil }
func (s *script) Begin() (driver.Tx, error)                    { s.log = append(s.log, "begin"); return s, nil }
func (s *script) Rollback() error                              { s.log = append(s.log, "rollback"); return nil }

func (s *script) Commit() error {
	s.log = append(s.log, "commit")
	err := s.commits[0]
	s.commits = s.commits[1:]
	return err
}

func (s *script) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	s.log = append(s.log, "assert")
	mark := s.marks[0]
	s.marks = s.marks[1:]
	if err, ok := mark.(error); ok {
		return nil, err
	}
	return &oneRow{mark}, nil
}

type oneRow struct{ mark any }

func (*oneRow) Columns() []string { return []string{"token"} }
func (*oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.mark == nil {
		return io.EOF
	}
	dest[0], r.mark = r.mark, nil
	return nil
}

func TestDo(t *testing.T) {
	broken := errors.New("broken")
	serialization, mine := stateError("40001"), int64(7)
	for name, test := range map[string]struct {
		marks   []any
		commits []error
		write   error
		log     string
		want    error
	}{
		"admitted":               {[]any{mine}, []error{nil}, nil, "begin assert write commit", nil},
		"stale":                  {[]any{int64(8)}, nil, nil, "begin assert rollback", fence.ErrStale},
		"below":                  {[]any{int64(6)}, nil, nil, "begin assert rollback", ErrNotClaimed},
		"no mark":                {[]any{nil}, nil, nil, "begin assert rollback", ErrNotClaimed},
		"the writer's error":     {[]any{mine}, nil, broken, "begin assert write rollback", broken},
		"the assert conflicts":   {[]any{serialization, mine}, []error{nil}, nil, "begin assert rollback begin assert write commit", nil},
		"then it is stale":       {[]any{serialization, int64(8)}, nil, nil, "begin assert rollback begin assert rollback", fence.ErrStale},
		"the commit conflicts":   {[]any{mine, mine}, []error{serialization, nil}, nil, "begin assert write commit begin assert write commit", nil},
		"the commit is refused":  {[]any{mine}, []error{stateError("23505")}, nil, "begin assert write commit", stateError("23505")},
		"the commit's answer":    {[]any{mine}, []error{io.ErrUnexpectedEOF}, nil, "begin assert write commit", ErrUnknown},
		"the answer's cause too": {[]any{mine}, []error{io.ErrUnexpectedEOF}, nil, "begin assert write commit", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{marks: test.marks, commits: test.commits}
				db := sql.OpenDB(s)
				defer db.Close()
				err := newGuard(t, PostgreSQL).Do(t.Context(), db, "r", 7, func(*sql.Tx) error {
					s.log = append(s.log, "write")
					return test.write
				})
				if !errors.Is(err, test.want) || err != nil && test.want == nil {
					t.Errorf("Do returned %v", err)
				}
				if unknown := test.want == ErrUnknown || test.want == io.ErrUnexpectedEOF; errors.Is(err, ErrUnknown) != unknown {
					t.Errorf("%v matches ErrUnknown: %v", err, !unknown)
				}
				if log := strings.Join(s.log, " "); log != test.log {
					t.Errorf("the database saw %s, want %s", log, test.log)
				}
			})
		})
	}
}

func TestHighest(t *testing.T) {
	for _, test := range []struct {
		mark any
		want fence.Token
	}{{int64(7), 7}, {int64(0), 0}, {int64(-1), 0}, {io.ErrUnexpectedEOF, 0}} {
		s := &script{marks: []any{test.mark}}
		db := sql.OpenDB(s)
		got, err := newGuard(t, MySQL).Highest(t.Context(), db)
		if _, fails := test.mark.(error); got != test.want || (err != nil) != fails || fails && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of %v: %d, %v", test.mark, got, err)
		}
		_ = db.Close()
	}
}

// Do tries again until ctx ends, in ever longer pauses, and returns the conflict.
func TestDoTriesAgainUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{marks: slices.Repeat([]any{stateError("40P01")}, 1000)}
		db := sql.OpenDB(s)
		defer db.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := newGuard(t, PostgreSQL).Do(ctx, db, "r", 7, func(*sql.Tx) error { return nil })
		if !errors.Is(err, stateError("40P01")) || errors.Is(err, ErrUnknown) {
			t.Errorf("Do returned %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("Do returned after %v", took)
		}
		if n := 1000 - len(s.marks); n < 10 || n > 100 {
			t.Errorf("%d tries in 2 s", n)
		}
	})
}

func TestAPanicRollsBack(t *testing.T) {
	s := &script{marks: []any{int64(7)}}
	db := sql.OpenDB(s)
	defer db.Close()
	defer func() {
		if r := recover(); r != "torn" || !slices.Contains(s.log, "rollback") {
			t.Errorf("recovered %v after %v", r, s.log)
		}
	}()
	_ = newGuard(t, PostgreSQL).Do(t.Context(), db, "r", 7, func(*sql.Tx) error { panic("torn") })
}
