package attack

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// ownDir is the key of a directory of the attacker's own.
var ownDir = wire.NewDirSeed().Key()

// forget proposes a Forget of a process as a later process of the name. The stream has shown
// the key shown, and the Forget names the directory dir.
func (a *attacker) forget(v peer, shown *wire.DirKey, dir machine.DirID) (machine.Outcome, error) {
	s, err := a.session(peer{v.Name, v.Boot + 1})
	if err != nil {
		return machine.Outcome{}, err
	}
	defer s.Close()
	s.showDir(shown.Prove(s.binding()))
	return s.propose(machine.Forget{Node: v.Name, Boot: v.Boot, Dir: dir})
}

// A process holds a lock and loses its stream to the leader. A holder of the secret, or of the
// certificate of all members, poses as a later process of the name, and knows everything but
// the key in the process's Dir. The lock stays for the TTL. The next process with the Dir
// frees the lock at once.
func TestNobodyPosesAsALaterProcess(t *testing.T) {
	if !thorough() {
		t.Skip("part of the matrix")
	}
	for _, m := range []mode{withSecret, withShared} {
		t.Run(string(m), func(t *testing.T) {
			w := newTown(t, 3, m)
			w.ttl = 10 * time.Second
			w.tryAlone(member, "pose as a later process of an absent member", w.pose)
		})
	}
}

// tryAlone carries out an attack that no row of the matrix is, and anew while the verdict is
// void. The town is started, if it does not run. The attack returns the harm.
func (w *town) tryAlone(who, attack string, run func() (harm string)) {
	w.t.Helper()
	for try := 1; ; try++ {
		w.settle()
		began := time.Now()
		v := verdict{mode: w.mode, who: who, attack: attack, harm: run()}
		v.took = time.Since(began)
		if !w.void(v, began, try) {
			w.t.Logf("%-8s %-8s %-48s %v (%v)", v.mode, v.who, v.attack, v, v.took.Round(time.Millisecond))
			expect(w.t, v)
			return
		}
		w.end()
	}
}

// pose ends the victim's process, attacks its lock, and starts the process again with another
// lock, and returns the harm, or "".
func (w *town) pose() string {
	a := w.attacker(member)
	defer a.close()
	var err error
	if a.know, err = w.learn(); err != nil || a.know.victim.Token == 0 {
		return fmt.Sprintf("nothing learnt: %v", err)
	}
	i := w.victim()
	v, other := a.know.process(i), w.houses[(i+1)%len(w.houses)]
	w.houses[i].kill()
	ended := time.Now()
	delete(w.held, a.know.key)
	stored, err := identity.Open(w.dirs[i], v.Name, clusterName, true)
	if err != nil {
		w.t.Fatal(err)
	}
	dir := stored.Get().Key.Key().ID() // its log and its snapshots tell, the key does not
	stored.Close()
	if dir == (machine.DirID{}) {
		w.t.Fatalf("%s has no key", filepath.Join(w.dirs[i], "identity"))
	}
	for { // until the leader has noticed the end of the streams
		o, err := a.forget(v, ownDir, ownDir.ID())
		if err == nil && o.Code == machine.OK {
			break
		}
		if time.Since(ended) > w.ttl/3 {
			return fmt.Sprintf("the process's own Forget would not be taken: %+v, %v", o, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, c := range []struct {
		shown *wire.DirKey
		dir   machine.DirID
	}{{nil, machine.DirID{}}, {nil, dir}, {ownDir, dir}} {
		if o, err := a.forget(v, c.shown, c.dir); err == nil {
			return fmt.Sprintf("a Forget of a directory that is not shown: %+v", o)
		}
	}
	if _, err := other.ask("acquire", a.know.key, patience); err != nil {
		return err.Error()
	}
	if took := time.Since(ended); took < w.ttl/2 {
		return fmt.Sprintf("the lock was granted %v after the end, the TTL is %v", took, w.ttl)
	}

	h := w.start(i)
	h.must("ready", "", patience)
	h.must("acquire", "again", patience)
	h.kill()
	began := time.Now()
	w.start(i)
	if _, err := other.ask("acquire", "again", patience); err != nil {
		return err.Error()
	}
	if took := time.Since(began); took > w.ttl/2 {
		return fmt.Sprintf("the lock was granted %v after the restart", took)
	}
	return ""
}
