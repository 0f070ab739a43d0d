package main

import (
	"strings"
	"testing"
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
