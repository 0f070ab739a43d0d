package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
)

// forms are the ways in which a secret may be written.
func forms(secret []byte) []string {
	var numbers []string
	for _, b := range secret {
		numbers = append(numbers, fmt.Sprint(b))
	}
	list := []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)), strings.Join(numbers, ","), strings.Join(numbers, " "),
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		list = append(list, e.EncodeToString(secret))
	}
	return list
}

// TestNoSecretIsInAReport: whatever the secrets are, no report of a member has one, before a
// rotation or after it, with refusals, events and members that lack the secret.
func TestNoSecretIsInAReport(t *testing.T) {
	for seed := range 4 {
		inBubble(t, func(b *bubble) {
			old, next := NewSecret(), NewSecret()
			if seed%2 == 1 { // a secret that is text could slip in where bytes do not
				old, next = []byte(fmt.Sprintf("old secret number %d, with letters", seed)), []byte(fmt.Sprintf("new secret number %d, with letters", seed))
			}
			secrets := func(c *Config) { c.Security.Secrets = [][]byte{old} }
			nodes := b.form(secrets)
			look := func(n *Node) {
				r := n.Report()
				text, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				plain := fmt.Sprintf("%+v %#v", r, r)
				for _, secret := range [][]byte{old, next} {
					for _, form := range forms(secret) {
						if quoted, _ := json.Marshal(form); bytes.Contains(text, quoted[1:len(quoted)-1]) || strings.Contains(plain, form) {
							t.Errorf("a secret is in the report of %s: %q", n.Name(), form)
						}
					}
				}
			}
			for _, n := range nodes {
				look(n)
			}
			stranger := b.start("n4", func(c *Config) { c.Security.Secrets = [][]byte{next} })
			time.Sleep(5 * time.Second)
			look(stranger)
			for _, n := range nodes {
				if err := n.SetSecrets(next, old); err != nil {
					t.Fatal(err)
				}
				n.self.Refused.Note(refused.Handshake, "someone", "a refusal")
			}
			time.Sleep(5 * time.Second)
			for _, n := range nodes {
				look(n)
				if r := n.Report(); r.Config.Secrets != 2 || len(r.Config.SecretIDs) != 2 {
					t.Errorf("the report tells %d secrets, with IDs %q", r.Config.Secrets, r.Config.SecretIDs)
				}
			}
		})
	}
}

// TestTheReportsFieldsAreFilled: in a cluster that works, a voter's report has a value in each
// field that such a cluster has a value for, and the document decodes into the same report.
func TestTheReportsFieldsAreFilled(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(func(c *Config) { c.Voting.Zone = "zone-" + c.Name })
		thin := b.join("n4", func(c *Config) { c.Voting.Thin = true })
		b.open(thin, 1)
		stop := b.beat(thin, 1)
		b.acquire(thin, 1, 1, "k")
		time.Sleep(10 * time.Second)
		var none []string
		for _, n := range []*Node{b.leader(), b.followers()[0], thin} {
			r := n.Report()
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var back Report
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(back); !bytes.Equal(again, text) {
				t.Errorf("decoded as\n%s, want\n%s", again, text)
			}
			if len(r.Members) != 4 || len(r.Events) == 0 || !r.Health.Quorum || r.Health.Age > Duration(n.link.TTL()) || !r.Leader.Reached {
				t.Errorf("%s reports %s", n.Name(), text)
			}
			for _, m := range r.Members {
				if m.Version == "" || !m.Alive || m.Reach == "lost" || m.Voter && (!m.Reached || !m.Current) {
					t.Errorf("%s reports the member %+v", n.Name(), m)
				}
				if !m.Self && (m.Clock == nil || max(*m.Clock, -*m.Clock) > m.ClockError) {
					t.Errorf("%s reports the clock %v of %s, within %v", n.Name(), m.Clock, m.Name, m.ClockError)
				}
			}
			if (r.Raft == nil) != (n == thin) {
				t.Errorf("%s has the raft %+v", n.Name(), r.Raft)
			}
			if r.Summary == nil || r.Summary.Keys != 1 || r.Summary.Sessions != 1 || !r.Summary.Granting || (r.Summary.Source == "leader") != (n == thin) {
				t.Errorf("%s has the summary %+v", n.Name(), r.Summary)
			}
			if n == b.leader() {
				none = zeros(reflect.ValueOf(*r.Raft), "Raft")
				if r.Raft.Applied != r.Raft.Commit || r.Raft.Lag != 0 {
					t.Errorf("the leader's raft is %+v", r.Raft)
				}
			}
		}
		// In memory, without a failure, on the leader, without a snapshot. In a bubble a
		// write takes no time.
		writes := []string{"Raft.Store.Writes.P50", "Raft.Store.Writes.P90", "Raft.Store.Writes.P99", "Raft.Store.Writes.Max"}
		want := []string{"Raft.Snapshot", "Raft.Lag", "Raft.Contact", "Raft.ContactAge", "Raft.Store.Durable"}
		want = append(append(want, writes...), "Raft.Store.Stalled", "Raft.Store.Failed")
		if !reflect.DeepEqual(none, want) {
			t.Errorf("without a value: %q, want %q", none, want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// zeros lists the fields without a value.
func zeros(v reflect.Value, path string) (list []string) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+"."+v.Type().Field(i).Name
		switch {
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]():
			list = append(list, zeros(f, name)...)
		case f.IsZero():
			list = append(list, name)
		}
	}
	return list
}

// BenchmarkReport measures the report of a member.
func BenchmarkReport(b *testing.B) {
	n, err := Start(b.Context(), Config{Name: "n1", InitialSize: 1, TTL: 300 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Stop()
	if err := n.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n.Report()
	}
}
