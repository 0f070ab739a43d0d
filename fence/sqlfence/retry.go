package sqlfence

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"
)

// again runs a transaction, and runs the transaction again after errors that pass, until
// ctx ends.
func again(ctx context.Context, transaction func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := transaction()
		if err == nil || !passes(err) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err // the reason is more than ctx's own error
		}
	}
}

// Error codes for a transaction that the database rolled back in favour of another.
const (
	mysqlDeadlock  = 1213
	mysqlLockWait  = 1205
	mysqlCheckRead = 1020 // MariaDB: record has changed since last read

	sqliteBusy   = 5
	sqliteLocked = 6
)

// passes reports whether err means that the transaction was rolled back and may succeed
// in another try.
func passes(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	state, number := codes(err)
	switch {
	case state != "":
		// 40001 serialization failure, 40P01 deadlock, 55P03 lock not available.
		// MySQL's errors have numbers too, and the numbers say more.
		if number == mysqlLockWait || number == mysqlCheckRead {
			return true
		}
		return strings.HasPrefix(state, "40") || state == "55P03"
	case number == mysqlDeadlock, number == mysqlLockWait, number == mysqlCheckRead:
		return true
	}
	// SQLite's extended codes have the code in their lowest byte.
	return number < 1000 && (number&0xff == sqliteBusy || number&0xff == sqliteLocked)
}

// answered reports whether err, the error of a commit, is an answer of the database: the
// transaction was rolled back. A broken connection is no answer.
func answered(err error) bool {
	state, number := codes(err)
	switch {
	case state != "": // 08: connection; 57P: shut down meanwhile, maybe after the commit
		return !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P") && state != "40003"
	case number == 0:
		return false
	}
	return passes(err) || number >= 1000 // of SQLite's: busy; a failed write is unknown
}

// codes returns the SQLSTATE and the database's own number of a driver's error. Drivers
// have no common interface, and this package imports no driver: pgx and lib/pq have a
// method SQLState, the MySQL driver has the fields Number and SQLState, SQLite's drivers
// have a method Code or a field Code.
func codes(err error) (state string, number int) {
	var withState interface{ SQLState() string }
	if errors.As(err, &withState) {
		state = withState.SQLState()
	}
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if m := v.MethodByName("Code"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			if n, ok := integer(m.Call(nil)[0]); ok {
				return state, n
			}
		}
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			continue
		}
		for _, field := range []string{"Number", "Code"} {
			if n, ok := integer(v.FieldByName(field)); ok {
				return state, n
			}
		}
	}
	return state, 0
}

// integer returns the value of any integer type.
func integer(v reflect.Value) (int, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return int(v.Int()), true
	case v.CanUint():
		return int(v.Uint()), true
	}
	return 0, false
}
