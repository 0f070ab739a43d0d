//go:build unix

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// An action goes to the first page that can be dialled. Nothing is done if there is none, and
// the error says so.
func TestAnActionFindsALivingPage(t *testing.T) {
	t.Parallel()
	w := sharedTown(t)
	dead := "http://" + freeAddr(t) + "/"
	r, token := hold(t, w, "acted", "-yield")
	_, err, code := runCLI(t, "", "ask", "-url", dead, "acted", token)
	if code != exitUnavailable || !strings.Contains(err, "nothing was done") {
		t.Errorf("without a page: code %d, stderr %q", code, err)
	}
	if out, err, code := runCLI(t, "", "ask", "-url", dead+","+w.procs[0].page, "acted", token); code != 0 || out == "" {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, err)
	}
	if code := r.wait(); code != exitSignal+15 {
		t.Errorf("code %d after an ask, stderr %q", code, r.stderr())
	}
}

// A process started anew under the name of a member that is gone does not stand in the way of
// recover, as it does not in the way of Node.Recover: it is in no cluster. A member of the
// cluster does.
func TestRecoverBesideANewProcess(t *testing.T) {
	t.Parallel()
	for _, foreign := range []bool{true, false} {
		var r locks.Report
		r.Node.Own.Name = "cid"
		r.Node.Members = []cluster.MemberReport{
			{Name: "ann", Boot: 2, Reach: "reached", Foreign: foreign},
			{Name: "cid", Boot: 3, Reach: "self", Self: true},
		}
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			again := r
			again.Node.Members = append([]cluster.MemberReport(nil), r.Node.Members...)
			again.Node.Members[0].Heard = time.Now()
			_ = json.NewEncoder(w).Encode(again)
		}))
		defer page.Close()
		_, err, code := runCLI(t, "nobody\n", "recover", "-url", page.URL, "ann")
		want := "lives: it answered"
		if foreign {
			want = "ann at -: reached, no voter, a new process of a name that is gone"
		}
		if code != exitFailed || !strings.Contains(err, want) {
			t.Errorf("foreign: %t: code %d, stderr %q", foreign, code, err)
		}
	}
}
