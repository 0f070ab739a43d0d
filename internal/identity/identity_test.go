package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/files"
	"github.com/wardmote/wardmote/internal/host"
)

func open(t *testing.T, dir, name, cluster string, named bool) *Store {
	t.Helper()
	s, err := Open(dir, name, cluster, named)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordOutlivesTheProcessWithADirectoryOnly(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := open(t, dir, "ann", "c", true)
		if err := s.Update(func(r *Record) { r.Token = 7 }); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, dir, "ann", "c", true)
		if got := again.Get().Token; (got == 7) != (dir != "") {
			t.Errorf("directory %q: token %d after a restart", dir, got)
		}
		again.Close()
	}
}

func TestForeignRecordsAreRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, "ann", "c", true)
	if err := s.Update(func(r *Record) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "ann", "c", true); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second process got the directory: %v", err)
	}
	s.Close()
	for _, c := range []struct {
		name, cluster string
		named         bool
		reason        string
	}{
		{"ben", "c", true, "belongs to member"},
		{"ann", "d", true, "belongs to cluster"},
	} {
		if _, err := Open(dir, c.name, c.cluster, c.named); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	unnamed := open(t, dir, "made-up", "c", false)
	if got := unnamed.Get().Name; got != "ann" {
		t.Errorf("a member without a name took %q, not the name in the record", got)
	}
	unnamed.Close()
}

// A reader does not wait for a change that is being stored: a member whose disk hangs must
// still find a leader elsewhere.
func TestReadersDoNotWaitForTheDisk(t *testing.T) {
	s := open(t, "", "ann", "c", true)
	storing, disk, stored := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		stored <- s.Update(func(r *Record) {
			close(storing)
			<-disk // any part of Update may wait
			r.Token = 7
		})
	}()
	<-storing
	read := make(chan uint64, 1)
	go func() { read <- s.Get().Token }()
	select {
	case token := <-read:
		if token != 0 {
			t.Errorf("a change is read before it is stored: %d", token)
		}
	case <-time.After(10 * time.Second):
		t.Error("the reader waits")
	}
	close(disk)
	if err := <-stored; err != nil || s.Get().Token != 7 {
		t.Errorf("stored %d, %v", s.Get().Token, err)
	}
}

// The processes of one host do not take the places of all other addresses, however low theirs are.
func TestAHostLeavesPlacesToOtherPeers(t *testing.T) {
	s, err := Open(t.TempDir(), "a", "test", true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := []string{"10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.3:7001", "[::1]:7000", "c.example:7000"}
	addrs := slices.Clone(want)
	for i := range 2 * maxPeers {
		addrs = append(addrs, fmt.Sprintf("10.0.0.1:%d", 7000+i))
	}
	if err := s.RememberPeers(addrs); err != nil {
		t.Fatal(err)
	}
	got := s.Get().Peers
	if len(got) != maxPeers || !slices.IsSorted(got) {
		t.Errorf("%d addresses: %q", len(got), got)
	}
	for _, addr := range want {
		if !slices.Contains(got, addr) {
			t.Errorf("%s is forgotten", addr)
		}
	}
}

// A member that ends does not wait for a disk that hangs: the change under way fails, later
// changes do too, and the directory stays locked until the disk answers.
func TestADiskThatHangsKeepsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := Open(dir, "a", "test", true)
		if err != nil {
			t.Fatal(err)
		}
		disk := new(host.Disk)
		s.Over(disk)
		if err := s.RememberPeers([]string{"one"}); err != nil {
			t.Fatal(err)
		}
		disk.Hang()
		stored, waiting := make(chan error, 1), make(chan error, 1)
		go func() { stored <- s.RememberPeers([]string{"two"}) }()
		synctest.Wait()
		go func() { waiting <- s.RememberPeers([]string{"three"}) }()
		synctest.Wait()
		s.GiveUp()
		for _, err := range []error{<-stored, <-waiting, s.RememberPeers([]string{"four"}), s.Close()} {
			if !errors.Is(err, errGivenUp) {
				t.Errorf("given up: %v", err)
			}
		}
		if peers := s.Get().Peers; !slices.Equal(peers, []string{"one"}) {
			t.Errorf("the record has %q", peers)
		}
		if _, err := files.Take(dir); !errors.Is(err, files.ErrInUse) {
			t.Errorf("the directory during the write: %v", err)
		}
		disk.Heal()
		synctest.Wait()
		again, err := Open(dir, "a", "test", true)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if peers := again.Get().Peers; !slices.Equal(peers, []string{"two"}) {
			t.Errorf("the next process finds %q", peers)
		}
	})
}
