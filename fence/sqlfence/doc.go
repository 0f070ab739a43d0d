// Package sqlfence fences writes to a database: PostgreSQL, MySQL, MariaDB and SQLite,
// by database/sql alone. The marks live in a table of the same database, so that a mark
// and the write that it admits are one transaction:
//
//	guard, err := sqlfence.New(sqlfence.PostgreSQL, sqlfence.Table{})
//	...
//	_, err = db.ExecContext(ctx, guard.Schema()) // once
//
//	err = guard.Claim(ctx, db, "account/7", lock.Token()) // once per grant, before the first read
//	...
//	err = guard.Do(ctx, db, "account/7", lock.Token(), func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = 7")
//		return err
//	})
//
// # Claim, then assert
//
// Claim stores the token of a new grant. Every write transaction begins with Assert,
// which Do calls: the stored token must be the writer's, and stays so until the
// transaction ends. A claim by a later holder waits for the transactions that have
// asserted, and every later Assert of the earlier holder fails. So what the new holder
// reads after its claim cannot be changed by any earlier holder.
//
// The order matters in three places:
//
//   - The claim comes before the first read. Otherwise the new holder may read what the
//     old holder is about to replace.
//   - Assert is the first statement of its transaction. Under REPEATABLE READ an earlier
//     read would fix what the transaction sees; Do cannot be used wrongly.
//   - A transaction that asserts never claims: two such transactions would wait for each
//     other.
//
// # The fence in the row
//
// With Table.InRow the token is a column of the protected rows themselves, and nothing
// is inserted. One row is then one resource. Keep a deleted row as a tombstone: a row
// that is inserted again has forgotten its mark.
//
// # What the package does not do
//
// Only writes that assert are fenced: every writer of the resource must. Reads need no
// fence unless a write follows from them. A guard in a database that loses commits, by
// asynchronous replication for example, may lose marks with them.
package sqlfence
