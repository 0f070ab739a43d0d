package locks

import (
	"context"
	"runtime/pprof"
	"strings"
)

// The labels of profiles. A key is a label only where keys are few and a work runs
// long: a program has a handful of elections, and as many shards as it has chosen. The
// keys of Do may be as many as a program's orders or users, and may say who they are.
const (
	labelCall  = "wardmote_call"  // Do, Elect, Once or Spread
	labelKey   = "wardmote_key"   // of Elect
	labelName  = "wardmote_name"  // of Spread
	labelShard = "wardmote_shard" // of Spread
)

// workLabels returns the labels for a work under the grant of a call.
func workLabels(call Call, key string) pprof.LabelSet {
	switch call {
	case CallElect:
		return pprof.Labels(labelCall, call.String(), labelKey, key)
	case CallSpread:
		slash := strings.LastIndexByte(key, '/') // see shardKey
		return pprof.Labels(labelCall, call.String(), labelName, key[:slash], labelShard, key[slash+1:])
	}
	return pprof.Labels(labelCall, call.String())
}

// runLabelled runs work with the labels of its call on the goroutine, and on the
// goroutines that the work starts. Afterwards the goroutine has the labels of ctx.
func runLabelled(ctx context.Context, l *Lock, work Work) (err error) {
	pprof.Do(ctx, workLabels(l.g.call, l.g.key), func(ctx context.Context) { err = work(ctx, l) })
	return err
}
