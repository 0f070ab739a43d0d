package machine

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

// TestUnknownCommandPoisonsNoOther: an unreadable command is refused in its place,
// and the other commands of the entry are applied.
func TestUnknownCommandPoisonsNoOther(t *testing.T) {
	a := session16("a")
	for name, alien := range map[string]Command{
		"nil":             nil,
		"pointer":         &Close{Session: a},
		"empty":           Unknown{},
		"unknown kind":    Unknown{Raw: "\xffabc"},
		"cut short":       Unknown{Raw: string(AppendCommand(nil, Close{Session: a})[:9])},
		"trailing":        Unknown{Raw: string(AppendCommand(nil, Close{Session: a})) + "x"},
		"long varint":     Unknown{Raw: "\x02\x80\x00"},
		"overflow":        Unknown{Raw: "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"},
		"too many seen":   Unknown{Raw: string(AppendCommand(nil, Release{Session: a, Seen: make([]uint64, MaxSeen+1)}))},
		"lying length":    Unknown{Raw: string(append(AppendCommand(nil, Close{Session: a})[:0:0], append([]byte{kindOpen}, append(a[:], 0xff, 0xff, 0x7f)...)...))},
		"flag of 2":       Unknown{Raw: string(append(EncodeCommand(SetValue{Rev: 1})[:20:20], 2, 0))},
		"waiters too big": Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k', acquireMaxWaiters, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0))},
		"second form":     Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 9, 1, 'k', acquireMaxWaiters, 0, 0, 0))},
		"later attribute": Unknown{Raw: string(append(append([]byte{kindAcquire}, a[:]...), 9, 1, 'k', 0, 0x80, 0x02, 7, 0))},
	} {
		t.Run(name, func(t *testing.T) {
			cmds, err := DecodeEntry(EncodeCommands([]Command{
				Open{Session: a, Client: "c", TTL: MinTTL},
				alien,
				Acquire{Session: a, Seq: 1, Key: "k"},
			}))
			if err != nil || len(cmds) != 3 {
				t.Fatalf("%d commands, %v", len(cmds), err)
			}
			s := founded()
			var codes []Code
			for _, c := range cmds {
				out, _ := s.Apply(c)
				codes = append(codes, out.Code)
			}
			if want := []Code{OK, BadCommand, Granted}; !reflect.DeepEqual(codes, want) {
				t.Errorf("codes %v, want %v", codes, want)
			}
			if !reflect.DeepEqual(must(DecodeEntry(EncodeCommands(cmds))), cmds) {
				t.Error("what was decoded does not survive another encoding")
			}
		})
	}
}

func TestBrokenEntriesAreRefused(t *testing.T) {
	good := EncodeCommands(everyCommand())
	for n := range good {
		if cmds, err := DecodeEntry(good[:n]); err == nil || cmds != nil {
			t.Errorf("an entry cut at %d of %d is accepted", n, len(good))
		}
	}
	if _, err := DecodeEntry(append(bytes.Clone(good), 0)); !errors.Is(err, errTrailing) {
		t.Errorf("trailing byte: %v", err)
	}
	if _, err := DecodeEntry(append([]byte{EntryVersion + 1}, good[1:]...)); err == nil {
		t.Error("another version is accepted")
	}
	if _, err := DecodeEntry(EncodeCommands(make([]Command, MaxCommands))); err != nil {
		t.Errorf("MaxCommands commands: %v", err)
	}
	if _, err := DecodeEntry(EncodeCommands(make([]Command, MaxCommands+1))); !errors.Is(err, errLimit) {
		t.Errorf("more than MaxCommands commands: %v", err)
	}
	if _, err := DecodeEntry([]byte{EntryVersion, 0xff, 0x07}); !errors.Is(err, errShort) {
		t.Errorf("1,023 commands claimed and none there: %v", err)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(EncodeCommands(everyCommand()))
	f.Add(EncodeCommands(nil))
	f.Add([]byte{EntryVersion, 0xff, 0x07})
	f.Add([]byte{EntryVersion, 1, 3, kindLift, 0x80, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var cmds []Command
		var err error
		if n := allocated(func() { cmds, err = DecodeEntry(b) }); n > 1<<16+256*uint64(len(b)) {
			t.Fatalf("%d bytes of input allocate %d", len(b), n)
		}
		if err != nil {
			return
		}
		if got := EncodeCommands(cmds); !bytes.Equal(got, b) {
			t.Fatalf("%x is encoded again as %x", b, got)
		}
		s := founded()
		for _, c := range cmds {
			s.Apply(c)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
