package attack

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// Honest members acquire and release as fast as before, beside a flood.
func TestTheCostOfFloods(t *testing.T) {
	if !thorough() {
		t.Skip("takes a minute: make attack")
	}
	floods := map[string]func(a *attacker, up chan<- struct{}, stop <-chan struct{}){
		"10,000 half-open connections": func(a *attacker, up chan<- struct{}, stop <-chan struct{}) {
			a.fill(10_000, func(n int) error {
				_, err := a.raw(a.w.leader(), n/1000)
				return err
			})
			close(up)
			// The member has closed most, and closes the rest after the time for a
			// handshake: enough come anew to keep its places taken.
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					_, _ = a.raw(a.w.leader(), n/1000%10)
				}
			}
		},
		"5,000 garbage packets a second": func(a *attacker, up chan<- struct{}, stop <-chan struct{}) {
			close(up)
			c, err := net.Dial("udp", a.w.told[a.w.leader()])
			if err != nil {
				return
			}
			defer c.Close()
			began, sent := time.Now(), 0
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				for due := int(time.Since(began).Seconds() * 5000); sent < due; sent++ {
					_, _ = c.Write(noise(64+sent%1200, uint64(sent)))
				}
			}
		},
	}
	for _, m := range modes() {
		w := newTown(t, 3, m)
		w.settle()
		for name, flood := range floods {
			var quiet, under []time.Duration
			began := time.Now()
			_, _, terms := w.leads()
			for range 4 { // in turns: the machine's own noise falls on both
				quiet = append(quiet, w.loads(2*time.Second)...)
				a := w.attacker(stranger)
				up, stop, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() { flood(a, up, stop); close(ended) }()
				<-up
				under = append(under, w.loads(2*time.Second)...)
				close(stop)
				<-ended
				a.close()
			}
			t.Logf("%-8s %-32s p50 %v, p99 %v of %d; without p50 %v, p99 %v of %d", m, name,
				percentile(under, 50), percentile(under, 99), len(under), percentile(quiet, 50), percentile(quiet, 99), len(quiet))
			if most := 3 * max(percentile(quiet, 99), 5*time.Millisecond); percentile(under, 99) > most {
				t.Errorf("%s: %s: p99 %v, above %v", m, name, percentile(under, 99), most)
			}
			if why := w.harm(terms); why != "" {
				t.Errorf("%s: %s: %s; meanwhile the host stood still for %v", m, name, why, w.stalled(began))
			}
		}
		w.end()
	}
}

// loads has a member acquire and release for a while.
func (w *town) loads(d time.Duration) []time.Duration {
	w.t.Helper()
	r, err := w.houses[w.victim()].ask("load", "load", d)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Took
}

// The CPU of a handshake, both sides together, this program's own included.
func TestTheCostOfAHandshake(t *testing.T) {
	if !thorough() {
		t.Skip("a figure: make attack")
	}
	const rounds = 300
	for _, m := range modes() {
		w := newTown(t, 1, m)
		w.start(0).must("ready", "", patience)
		a := w.attacker(member)
		before := cpu("self") + cpu(fmt.Sprint(w.houses[0].cmd.Process.Pid))
		for range rounds {
			c, err := a.control(0, peer{})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		each := (cpu("self") + cpu(fmt.Sprint(w.houses[0].cmd.Process.Pid)) - before) / rounds
		t.Logf("%-8s %v of CPU for a handshake", m, each.Round(10*time.Microsecond))
		if each > 5*time.Millisecond {
			t.Errorf("%s: %v of CPU for a handshake", m, each)
		}
		a.close()
		w.end()
	}
}

// cpu returns the CPU time of a process so far.
func cpu(pid string) time.Duration {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // ticks of Linux
}

// The secret changes on five members under load: no lock is lost, and no pair of
// acquire and release takes a second.
func TestASecretChangesUnderLoad(t *testing.T) {
	if !thorough() {
		t.Skip("takes half a minute: make attack")
	}
	w := newTown(t, 5, withSecret)
	w.settle()
	_, _, terms := w.leads()
	old, next := w.papers.secret, cluster.NewSecret()
	var loads []func() (report, error)
	for i, h := range w.houses {
		loads = append(loads, h.begin(command{Do: "load", Key: fmt.Sprint("load-", i), Wait: 50 * time.Second}))
	}
	for step, secrets := range [][][]byte{{old, next}, {next, old}, {next}} {
		time.Sleep(2 * time.Second)
		if step == 2 {
			time.Sleep(30 * time.Second) // the streams move to the first secret meanwhile
		}
		for _, h := range w.houses {
			if _, err := h.begin(command{Do: "secrets", Secrets: secrets, Wait: 5 * time.Second})(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // one member after the other, as operators do
		}
	}
	for i, wait := range loads {
		r, err := wait()
		if err != nil {
			t.Errorf("member %d: %v", i, err)
		}
		t.Logf("member %d: p50 %v, p99 %v, longest %v of %d", i, percentile(r.Took, 50), percentile(r.Took, 99), percentile(r.Took, 100), len(r.Took))
		if longest := percentile(r.Took, 100); longest > time.Second {
			t.Errorf("member %d: a pair took %v", i, longest)
		}
	}
	w.papers.secret = next
	if why := w.harm(terms); why != "" {
		t.Error(why)
	}
	// A holder of the old secret alone is a stranger now.
	a := &attacker{t: t, w: w, who: impostor, openers: []opener{secretOpener(old, clusterName)}}
	defer a.close()
	if _, err := a.control(0, peer{}); err == nil {
		t.Error("the removed secret opens a stream")
	}
}
