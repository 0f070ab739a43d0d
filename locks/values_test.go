package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// values lists the values of a prefix.
func values(t *testing.T, c *Client, prefix string) (list []Value) {
	t.Helper()
	for v, err := range c.Values(within(time.Minute), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

func set(t *testing.T, c *Client, key, value string) {
	t.Helper()
	if err := c.Cell(key).Update(bg, func([]byte) []byte { return []byte(value) }); err != nil {
		t.Fatal(err)
	}
}

func TestValuesOfAPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		if _, err := b.Once(bg, "id", func(context.Context) ([]byte, error) { return []byte("once"), nil }); err != nil {
			t.Fatal(err)
		}
		set(t, b, "cfg/b", "two")
		set(t, b, "cfg/a", "one")
		set(t, b, "d", "three")
		l := acquire(t, a, "cfg/c")
		if err := l.SetValue(bg, []byte("half")); err != nil {
			t.Fatal(err)
		}
		lost := l.Token()
		m.Isolate()
		time.Sleep(2 * testTTL)
		m.Heal()
		text := func(list []Value) (s string) {
			for _, v := range list {
				s += fmt.Sprintf("%s=%s clean=%t ", v.Key, v.Data, v.Clean)
			}
			return s
		}
		cfg := values(t, b, "cfg/")
		if got := text(cfg); got != "cfg/a=one clean=true cfg/b=two clean=true cfg/c=half clean=false " {
			t.Error(got)
		}
		if cfg[2].Token != lost {
			t.Errorf("token %d, want %d", cfg[2].Token, lost)
		}
		if got := text(values(t, b, "")); !strings.HasSuffix(got, "d=three clean=true ") || strings.Contains(got, "once") {
			t.Error(got)
		}
		// The loop's body owns the data; an empty value is none.
		cfg[0].Data[0] = 'X'
		set(t, b, "cfg/b", "")
		if got := text(values(t, b, "cfg/")); got != "cfg/a=one clean=true cfg/c=half clean=false " {
			t.Error(got)
		}
		l = acquire(t, b, "cfg/a", IfToken(cfg[0].Token))
		release(t, l)
		for _, err := range b.Values(bg, "\x00once") {
			if err == nil {
				t.Error("a reserved prefix is listed")
			}
		}
	})
}

// Values come in pages bounded in number and in bytes, through changes of the leader:
// each value that does not change comes once.
func TestValuesInPages(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "c")
		id := machine.SessionKey{7}.ID()
		w.Must(machine.Open{Session: id, Client: "x", Node: "n", TTL: uint64(testTTL / time.Millisecond)})
		w.SetCheck(false)
		const all = 700
		for i := range all {
			size := 100
			if i%10 == 0 {
				size = machine.MaxValue
			}
			token := w.Must(machine.Acquire{Session: id, Seq: uint64(i + 1), Key: fmt.Sprintf("v/%03d", i)}).Token
			w.Must(machine.SetValue{Session: id, Token: token, Rev: 1, Value: []byte(strings.Repeat("x", size))})
		}
		n := 0
		for v, err := range c.Values(bg, "v/") {
			if err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("v/%03d", n); v.Key != want {
				t.Fatalf("%s, want %s", v.Key, want)
			}
			if n++; n%100 == 0 {
				w.Lead()
			}
		}
		if n != all {
			t.Errorf("%d values", n)
		}
		for range c.Values(bg, "") {
			break
		}
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		n = 0
		var last error
		for _, err := range c.Values(ctx, "") {
			cancel()
			n, last = n+1, err
		}
		if n > 300 || !errors.Is(last, context.Canceled) {
			t.Errorf("%d values, then %v", n, last)
		}
	})
}

// Deleted values make room for others.
func TestDeletedValuesAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "c")
		for i := range 20 {
			set(t, c, fmt.Sprint("k", i), "v")
		}
		for v := range c.Values(bg, "k") {
			set(t, c, v.Key, "")
		}
		if n := w.Counts(); n.Values != 0 || len(values(t, c, "")) != 0 {
			t.Errorf("%+v", n)
		}
	})
}
