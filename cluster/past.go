package cluster

import (
	"context"
	"slices"
	"sync"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// The keys of a dead process stay taken until its sessions expire. The next process
// of the member frees the keys at once, if the earlier process has certainly ended,
// with every goroutine that may trust a lock:
//
//   - This process holds the lock on the member's directory. The earlier process
//     held the same lock, and gave the lock back only by its death or, in Stop, after
//     the contexts of all its locks had ended.
//   - The host has not been booted in between: the kernel's boot ID stands in the
//     record. So the lock was the same, kept by the same kernel. A volume moved from
//     another host is locked by two kernels, and the process there may still run.
//   - Nothing answers as the earlier process at its former address. Otherwise
//     the directory is a copy, with a lock of its own.
//
// One committed entry then ends the sessions of exactly that process, and has the
// table refuse new ones, since an Open may still lie in a buffer: see
// machine.Forget. Where one of the conditions does not hold, the TTL decides.
//
// This process is believed because it has the directory, and not because of its name, which
// every holder of a shared secret can take. The record has a random key. The
// sessions of every process carry the ID of the key that its directory had, and the
// leader takes a Forget only on a stream that has proved to have the key: see wire.DirKey.
// The key is drawn anew with each boot of the host, since no earlier session can be
// freed by it then: so a directory copied to another host soon has a key of its own, and the
// key in an old copy is of no use.
//
// A member without a Dir has no such key, and frees nothing. A later process of the name
// proves nothing about the earlier process: no lock excludes either of the two, and a
// second process may have the name by mistake.

// maxPast is the number of earlier processes remembered: processes dead before
// freeing their own past. Sessions of any more expire.
const maxPast = 16

// beginLife takes the place of the member's last process in the record, before
// this process can open a session. From then on the record has the earlier
// processes with sessions for this process to end, and the key that this process's
// sessions are bound to.
func (n *Node) beginLife() error {
	if !n.record.Durable() {
		return nil
	}
	host := n.cfg.hostBoot()
	err := n.record.Update(func(r *identity.Record) {
		switch {
		case host == "":
			r.Past, r.Key = nil, nil // no later process can free the sessions of this one
		case r.Host != host || r.Key.Key() == nil:
			r.Past, r.Key = nil, wire.NewDirSeed()
		case r.Boot != 0:
			r.Past = append(slices.Clone(r.Past), identity.Life{Boot: r.Boot, Addr: r.Addr})
			r.Past = r.Past[max(0, len(r.Past)-maxPast):]
		}
		r.Boot, r.Addr, r.Host = n.self.Boot, n.self.Addr, host
	})
	n.dirKey = n.record.Get().Key.Key()
	return err
}

// freePast ends the sessions of this member's earlier processes, as soon as a
// leader is found.
func (n *Node) freePast() {
	var lives sync.WaitGroup
	for _, life := range n.record.Get().Past {
		lives.Go(func() { n.freeLife(life) })
	}
	lives.Wait()
}

func (n *Node) freeLife(life identity.Life) {
	if n.answers(member.Process{Name: n.self.Name, Boot: life.Boot, Addr: life.Addr}) {
		n.self.Log.Error("an earlier process of this member still runs",
			"boot", life.Boot, "address", life.Addr, "next", "give each process a Dir of its own, never a copy")
		return
	}
	out, err := n.link.Propose(n.ctx, machine.Forget{Node: n.self.Name, Boot: life.Boot, Dir: n.dirKey.ID()})
	if err != nil || out.Code != machine.OK {
		n.self.Log.Debug("locks of an earlier process not freed", "boot", life.Boot, "code", out.Code, "error", err)
		return
	}
	n.self.Log.Info("locks of an earlier process freed", "boot", life.Boot, "next", "nothing")
	err = n.record.Update(func(r *identity.Record) {
		r.Past = slices.DeleteFunc(slices.Clone(r.Past), func(o identity.Life) bool { return o == life })
	})
	if err != nil {
		n.self.Log.Debug("locks of an earlier process freed, but not recorded", "error", err)
	}
}

// answers reports whether a process answers at its address. At this process's own
// address no other process can.
func (n *Node) answers(p member.Process) bool {
	ctx, cancel := context.WithTimeout(n.ctx, timing.Dial)
	defer cancel()
	var who wire.WhoAnswer
	return p.Addr != n.self.Addr && n.peers.AskInto(ctx, p, wire.Who, nil, &who) == nil &&
		who.Name == p.Name && who.Boot == p.Boot
}
