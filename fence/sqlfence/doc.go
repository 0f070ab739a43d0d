// Package sqlfence fences writes to a database: PostgreSQL, MySQL, MariaDB and SQLite,
// by database/sql alone. The marks live in a table of the same database, so that one
// transaction checks the mark and writes:
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
// asserted, and every later Assert of the earlier holder fails. So no earlier holder can
// change the data that the new holder reads after its claim.
//
// The order matters in three places:
//
//   - The claim comes before the first read. Otherwise the new holder may read data that
//     the old holder is about to replace.
//   - Assert is the first statement of its transaction. Under REPEATABLE READ an earlier
//     read would fix the transaction's view of the data. Do asserts first.
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
// Only writes that assert are fenced: every writer of the resource must assert. Reads
// need no fence unless a write follows from the read.
//
// A database that loses commits may lose marks too:
//
//   - PostgreSQL with synchronous_commit off, MySQL with innodb_flush_log_at_trx_commit 0
//     or 2, SQLite in WAL mode with synchronous NORMAL: at a power loss
//   - asynchronous replication: at a failover
//
// Galera and Group Replication with several writers lock rows on one server only. Send
// all writes to one server, or use Table.InRow: there claim and write change the same
// row, and the servers detect the conflict.
//
// In SQLite Assert is an update that changes nothing. With Table.InRow the update fires
// the update triggers of your table.
package sqlfence
