package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A class is a guarantee. Only systems of one class are equals.
type class string

const (
	durable class = "durable" // a lock survives the loss of power of all members
	boot    class = "boot"    // a lock survives the end of all processes, and the loss of a minority of the hosts
	memory  class = "memory"  // a lock survives the loss of a minority of the members
	weaker  class = "weaker"  // a lock is lost, or held twice, with the loss of one server
)

// An absence is the reason why a system has no sample of a workload, and no failure.
type absence string

func (a absence) Error() string { return string(a) }

const (
	errNotHad      absence = "not to be had" // the system lacks the feature
	errNotMeasured absence = "not measured"
	errNotDurable  absence = "nothing in memory outlives a majority"
)

// A caller is one goroutine's way to a system. Its methods are called by one goroutine
// at a time.
type caller interface {
	// acquire waits for key. release frees key.
	acquire(ctx context.Context, key string) (release func(context.Context) error, err error)
}

// A setCaller acquires several keys at once.
type setCaller interface {
	acquireAll(ctx context.Context, keys []string) (release func(context.Context) error, err error)
}

// A sharedCaller acquires keys that readers share, as a reader or as the writer.
type sharedCaller interface {
	acquireShared(ctx context.Context, key string, writer bool) (release func(context.Context) error, err error)
}

// A lazyCaller acquires a key whose release waits for nothing.
type lazyCaller interface {
	acquireLazy(ctx context.Context, key string) (release func(context.Context) error, err error)
}

// A stickyCaller acquires a key that stays with the caller after its release.
type stickyCaller interface {
	acquireSticky(ctx context.Context, key string) (release func(context.Context) error, err error)
}

// A place is the members that callers are connected to.
type place string

const (
	everywhere place = "everywhere" // spread over the members
	atLeader   place = "leader"
	atFollower place = "follower"
	atThin     place = "thin" // a member without a vote
)

// A system is a running lock service with members of its own.
type system interface {
	// caller returns the caller of number i at a place. contends: the callers need
	// sessions of their own, because they compete for one key.
	caller(ctx context.Context, at place, i int, contends bool) (caller, error)
	entries() uint64 // log entries that have been committed, 0 if unknown
	pids() []int     // server processes apart from this one
	version() string
	stop() error
}

// A kind is a system that can be started.
type kind struct {
	name  string
	ours  bool
	class class
	in    []setting
	title string // of the report
	// there returns the reason why the system cannot run on this host, or nil.
	there func() error
	start func(ctx context.Context, dir string) (system, error)
}

// A setting is a place of members and callers. The systems of a setting are up at once,
// and those of other settings are not.
type setting string

const (
	oneProcess setting = "one process" // members and callers in one process, as far as the system can
	processes  setting = "processes"   // each member is a process
	delayed    setting = "delay"       // as oneProcess, with 1 ms of delay from each member to each other
)

var settings = []setting{oneProcess, processes, delayed}

var kinds = []kind{
	{"wardmote", true, durable, []setting{oneProcess}, "wardmote, `Dir`", always, startWardmote(wardmoteOptions{class: durable})},
	{"wardmote-boot", true, boot, []setting{oneProcess}, "wardmote, `Dir` and `SyncBoot`", bootThere, startWardmote(wardmoteOptions{class: boot})},
	{"wardmote-memory", true, memory, []setting{oneProcess}, "wardmote, in memory", always, startWardmote(wardmoteOptions{class: memory})},
	{"etcd", false, durable, []setting{oneProcess}, "etcd, embedded", always, startEtcd(false)},
	{"zookeeper", false, durable, []setting{oneProcess, processes}, "ZooKeeper, three processes", zookeeperThere, startZooKeeper(false)},
	{"redis", false, weaker, []setting{oneProcess}, "Redis, one server in memory", redisThere, startRedis(false)},

	{"wardmote-processes", true, durable, []setting{processes}, "wardmote, `Dir`", always, startWardmoteProcesses(durable)},
	{"wardmote-memory-processes", true, memory, []setting{processes}, "wardmote, in memory", always, startWardmoteProcesses(memory)},
	{"etcd-processes", false, durable, []setting{processes}, "etcd, three processes", always, startEtcdProcesses},

	{"wardmote-delay", true, durable, []setting{delayed}, "wardmote, `Dir`", always, startWardmote(wardmoteOptions{class: durable, late: true})},
	{"wardmote-memory-delay", true, memory, []setting{delayed}, "wardmote, in memory", always, startWardmote(wardmoteOptions{class: memory, late: true})},
	{"etcd-delay", false, durable, []setting{delayed}, "etcd, embedded", always, startEtcd(true)},
	{"zookeeper-delay", false, durable, []setting{delayed}, "ZooKeeper, three processes", zookeeperThere, startZooKeeper(true)},
	{"redis-delay", false, weaker, []setting{delayed}, "Redis, one server in memory; the delay is between callers and server", redisThere, startRedis(true)},
}

func always() error { return nil }

func bootThere() error {
	if _, err := os.Stat("/proc/sys/kernel/random/boot_id"); err != nil {
		return errors.New("no boot ID of the kernel")
	}
	return nil
}

func kindOf(name string) (kind, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		var names []string
		for _, k := range kinds {
			names = append(names, k.name)
		}
		return kind{}, fmt.Errorf("no system %q: there are %s", name, strings.Join(names, ", "))
	}
	return kinds[i], nil
}
