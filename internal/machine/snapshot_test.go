package machine

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestImageIsGolden(t *testing.T) {
	want := golden(t, "snapshot-v1.hex", image(rich(t)))
	s, err := Restore(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(image(s), want) {
		t.Error("what was restored has another image")
	}
	golden(t, "snapshot-empty-v1.hex", image(New()))
}

// TestImageHasAllOfTheTables compares the tables themselves, so a field neither
// written nor read shows. The test fails if rich leaves a field zero.
func TestImageHasAllOfTheTables(t *testing.T) {
	s := rich(t)
	r, err := Restore(bytes.NewReader(image(s)))
	if err != nil {
		t.Fatal(err)
	}
	unset := make(map[string]bool)
	note := func(name string, set bool) {
		if before, ok := unset[name]; !ok || before {
			unset[name] = !set
		}
	}
	var setsOf func(name string, v reflect.Value)
	setsOf = func(of string, v reflect.Value) {
		v = reflect.Indirect(v)
		for i := range v.NumField() {
			name := of + "." + v.Type().Field(i).Name
			if v.Field(i).Type() == reflect.TypeFor[marks]() {
				for one := markSet; one <= markBroken; one <<= 1 {
					note(fmt.Sprint(name, one), marks(v.Field(i).Uint()).is(one))
				}
				continue
			}
			if v.Type().Field(i).Anonymous {
				setsOf(name, v.Field(i))
				continue
			}
			note(name, !v.Field(i).IsZero())
		}
	}
	sets := func(v reflect.Value) { setsOf(v.Type().String(), v) }
	sameTable(t, s.keys.count(), s.keys.all, r.keys.all, func(k *record) record {
		c := *k
		c.epoch, c.extra = 1, new(*k.extra)
		sets(reflect.ValueOf(c))
		for _, g := range c.holders {
			sets(reflect.ValueOf(g))
			if g.ghost != nil {
				sets(reflect.ValueOf(*g.ghost))
			}
		}
		for _, w := range c.queue {
			sets(reflect.ValueOf(w))
		}
		c.holders = append([]grant(nil), c.holders...)
		c.queue = append([]waiter(nil), c.queue...)
		return c
	})
	sameTable(t, s.sessions.count(), s.sessions.all, r.sessions.all, func(o *session) session {
		c := *o
		c.epoch = 1
		sets(reflect.ValueOf(c))
		c.index = nil
		return c
	})
	sameTable(t, s.sets.count(), s.sets.all, r.sets.all, func(keys []string) []string { return keys })
	sameTable(t, s.answers.count(), s.answers.all, r.answers.all, func(a *answer) answer {
		sets(reflect.ValueOf(*a))
		return *a
	})
	sameTable(t, s.groups.count(), s.groups.all, r.groups.all, func(g *group) group {
		c := *g
		c.epoch, c.busy = 1, 1
		sets(reflect.ValueOf(c))
		for _, by := range c.callers {
			sets(reflect.ValueOf(by))
		}
		return c
	})
	sets(reflect.ValueOf(s.header))
	for name := range unset {
		if unset[name] {
			t.Errorf("%s is nowhere set", name)
		}
	}
	if !reflect.DeepEqual(s.header, r.header) {
		t.Errorf("header %+v, restored as %+v", s.header, r.header)
	}
	if _, upTo, ok := r.Changes("", s.Commands(), 1); upTo != s.Commands() || !ok {
		t.Errorf("changes since the restore are not known: up to %d, %t", upTo, ok)
	}
	if _, _, ok := r.Changes("", s.Commands()-1, 1); ok {
		t.Error("changes before the restore are known")
	}
}

func sameTable[K comparable, V, C any](t *testing.T, n int, a, b iter.Seq2[K, V], content func(V) C) {
	t.Helper()
	if n == 0 {
		t.Error("an empty table proves nothing")
	}
	was := maps.Collect(a)
	for k, v := range b {
		of, ok := was[k]
		if got, want := content(v), content(of); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%v restored as\n%+v, was\n%+v", k, got, want)
		}
		delete(was, k)
	}
	if len(was) > 0 {
		t.Errorf("%d elements not restored of %d", len(was), n)
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, roundTrip(anyRecord(),
		func(b []byte, r *record) []byte {
			c := coder{out: b}
			codeRecord(&c, r)
			return c.out
		},
		func(b []byte) (*record, error) {
			c, r := newDecoder(b), new(record)
			codeRecord(&c, r)
			return r, c.in.finish()
		}))
}

// TestImageStaysWhileApplyGoesOn takes images between commands that change
// everything. It reads them at the end, and from other goroutines meanwhile.
func TestImageStaysWhileApplyGoesOn(t *testing.T) {
	s := rich(t)
	type taken struct {
		image *Image
		bytes []byte
	}
	var all []taken
	var readers sync.WaitGroup
	take := func() {
		want := image(s)
		i := s.Snapshot()
		all = append(all, taken{i, want})
		readers.Go(func() {
			for range 3 {
				var got bytes.Buffer
				n, err := i.WriteTo(&got)
				if err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("an image changed while it was written: %d bytes, %v", n, err)
				}
			}
		})
	}
	a, b := session16("a"), session16("b")
	seq := uint64(100)
	for round := range 20 {
		take()
		for i := range 10 {
			id := a
			if i%2 == 1 {
				id = b
			}
			seq++
			key := fmt.Sprint("key ", i/2)
			out, _ := s.Apply(Acquire{Session: id, Seq: seq, Key: key})
			switch {
			case out.Code == Granted && i == 6:
				s.Apply(SetValue{Session: id, Token: out.Token, Rev: 1, Value: fmt.Append(nil, round), Fade: round%2 == 0})
				s.Apply(Downgrade{Session: id, Token: out.Token})
				s.Apply(Acquire{Session: b, Seq: seq + 2000, Key: key, Spec: Spec{Mode: Shared}})
				s.Apply(Upgrade{Session: id, Seq: seq + 3000, Token: out.Token, Seen: []uint64{seq, seq + 2000}})
			case out.Code == Granted && i%4 == 0:
				s.Apply(Acquire{Session: id, Seq: seq + 1000, Key: key, Try: true, Seen: []uint64{seq}})
			case out.Code == Granted:
				s.Apply(Release{Session: id, Token: out.Token, Seen: []uint64{seq + 1000}})
			case i%3 == 0:
				s.Apply(Withdraw{Session: id, Seq: seq})
			}
		}
		take()
		switch round {
		case 3:
			s.Apply(Withdraw{Session: session16("d"), Seq: 2})
			s.Apply(Withdraw{Session: session16("e"), Seq: 3})
		case 5:
			s.Apply(Release{Session: a, Token: 1 << 52})
		case 7:
			s.Apply(Close{Session: session16("d")})
		case 9:
			s.Apply(Silence{Session: b, Term: 3})
		case 12:
			s.Apply(Expire{Session: a, Term: 3})
		case 15:
			s.Apply(Close{Session: b})
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
	for n, i := range all {
		var got bytes.Buffer
		if _, err := i.image.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), i.bytes) {
			t.Errorf("image %d has changed: %v", n, err)
		}
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.after {
		return f.after, io.ErrShortWrite
	}
	f.after -= len(b)
	return len(b), nil
}

func TestWriteErrorIsReturned(t *testing.T) {
	n, err := rich(t).Snapshot().WriteTo(&failing{after: 10})
	if n != 10 || err != io.ErrShortWrite {
		t.Errorf("%d, %v", n, err)
	}
}
