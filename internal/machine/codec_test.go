package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEntryEncodingIsGolden(t *testing.T) {
	want := everyCommand()
	file := golden(t, "entry-v1.hex", EncodeCommands(want))
	got, err := DecodeEntry(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded\n%#v, want\n%#v", got, want)
	}
}

func TestAnswerEncodingsAreGolden(t *testing.T) {
	var frames [][]byte
	for _, o := range everyOutcome() {
		frames = append(frames, AppendOutcome(nil, o))
	}
	for _, e := range everyEvent() {
		frames = append(frames, AppendEvent(nil, e))
	}
	var all []byte
	for _, f := range frames {
		all = appendBytes(all, f)
	}
	r := reader{b: golden(t, "answers-v1.hex", all)}
	for _, want := range everyOutcome() {
		if got, err := DecodeOutcome(r.bytes()); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range everyEvent() {
		if got, err := DecodeEvent(r.bytes()); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if err := r.finish(); err != nil {
		t.Error(err)
	}
}

// TestFieldsOfALaterVersionArePassedOver: this version reads an outcome or event of
// a later version without the unknown fields.
func TestFieldsOfALaterVersionArePassedOver(t *testing.T) {
	// The bits are a varint after the code: one more bit, and a field behind the
	// rest.
	later := func(b []byte, known uint64) []byte {
		set, n := binary.Uvarint(b[1:])
		out := binary.AppendUvarint(b[:1:1], set|(known+1))
		return append(append(out, b[1+n:]...), "later"...)
	}
	for _, want := range everyOutcome() {
		if got, err := DecodeOutcome(later(AppendOutcome(nil, want), outcomeBits)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	for _, want := range everyEvent() {
		if got, err := DecodeEvent(later(AppendEvent(nil, want), eventBits)); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	// A snapshot is read by one version only.
	a := answer{out: Outcome{Code: Granted, Token: 7}}
	c := newDecoder(slices.Concat(make([]byte, 16+1), later(AppendOutcome(nil, a.out), outcomeBits), []byte{0, 0}))
	read := &answer{}
	if codeAnswer(&c, new(requestID), &read); !errors.Is(c.in.err, errBits) {
		t.Errorf("an answer of a later version in a snapshot: %v", c.in.err)
	}
}

// setField sets field i of v, a struct, to a value other than zero.
func setField(t *testing.T, v reflect.Value, i int) {
	f := v.Field(i)
	switch f.Interface().(type) {
	case SessionID, ClusterID, SessionRef, DirID:
		f.Index(15).SetUint(9)
		return
	case Holder:
		setField(t, f, f.NumField()-1) // that it has Key; all of it is golden
		return
	}
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(true)
	case reflect.String:
		f.SetString("text")
	case reflect.Int8:
		f.SetInt(-128)
	case reflect.Uint8:
		f.SetUint(1)
	case reflect.Uint16:
		f.SetUint(1<<16 - 1)
	case reflect.Uint32:
		f.SetUint(1<<32 - 1)
	case reflect.Uint64:
		f.SetUint(1<<64 - 1)
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 2, 2)) // even of zeroes
	default:
		t.Fatalf("%v.%s is a %v", v.Type(), v.Type().Field(i).Name, f.Kind())
	}
}

// everyField sets one field of v at a time, a zero struct, and calls f each time. An
// embedded Spec counts as its fields.
func everyField(t *testing.T, v reflect.Value, f func()) {
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			everyField(t, v.Field(i), f)
			continue
		}
		setField(t, v, i)
		f()
		v.Field(i).SetZero()
	}
}

// TestEveryFieldIsEncoded sets one field at a time, of each encoded struct. A
// forgotten new field shows here.
func TestEveryFieldIsEncoded(t *testing.T) {
	check := func(empty any, again func(any) (any, error)) {
		v := reflect.New(reflect.TypeOf(empty)).Elem()
		everyField(t, v, func() {
			got, err := again(v.Interface())
			if err != nil || !reflect.DeepEqual(got, v.Interface()) {
				t.Errorf("%#v is decoded as %#v, %v", v.Interface(), got, err)
			}
		})
	}
	done := make(map[reflect.Type]bool)
	for _, c := range everyCommand() {
		if _, ok := c.(Unknown); ok || done[reflect.TypeOf(c)] {
			continue
		}
		done[reflect.TypeOf(c)] = true
		check(reflect.Zero(reflect.TypeOf(c)).Interface(), func(v any) (any, error) {
			return DecodeCommand(EncodeCommand(v.(Command)))
		})
	}
	if n := len(done); n != kinds {
		t.Errorf("%d types of commands", n)
	}
	check(Outcome{}, func(v any) (any, error) { return DecodeOutcome(AppendOutcome(nil, v.(Outcome))) })
	check(Event{}, func(v any) (any, error) { return DecodeEvent(AppendEvent(nil, v.(Event))) })
}

// TestEncodingsRoundTrip: a decoded encoding is the same value. A part of an
// encoding is refused, and so are more bytes. Bytes with one difference are refused,
// or are the encoding of another value.
func TestEncodingsRoundTrip(t *testing.T) {
	t.Run("command", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyCommand(), AppendCommand, DecodeCommand))
	})
	t.Run("outcome", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyOutcome(), AppendOutcome, known(DecodeOutcome, outcomeBits)))
	})
	t.Run("event", func(t *testing.T) {
		rapid.Check(t, roundTrip(anyEvent(), AppendEvent, known(DecodeEvent, eventBits)))
	})
}

// known decodes, but refuses the fields of a later version.
func known[T any](decode func([]byte) (T, error), bits uint64) func([]byte) (T, error) {
	return func(b []byte) (v T, err error) {
		if len(b) > 1 {
			if set, n := binary.Uvarint(b[1:]); n > 0 && set&^bits != 0 {
				return v, errBits
			}
		}
		return decode(b)
	}
}

func roundTrip[T any](values *rapid.Generator[T], encode func([]byte, T) []byte, decode func([]byte) (T, error)) func(*rapid.T) {
	return func(t *rapid.T) {
		want := values.Draw(t, "value")
		b := encode([]byte("before"), want)[len("before"):]
		got, err := decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%x is %#v, %v, and should be\n%#v", b, got, err, want)
		}
		if _, err := decode(append(bytes.Clone(b), 0)); !errors.Is(err, errTrailing) {
			t.Fatalf("%x and one byte more: %v", b, err)
		}
		part := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
		if _, err := decode(part); err == nil {
			t.Fatalf("a part of %x is accepted", b)
		}
		bad := bytes.Clone(b)
		bad[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
		if other, err := decode(bad); err == nil {
			if again := encode(nil, other); !bytes.Equal(again, bad) {
				t.Fatalf("%x is encoded again as %x", bad, again)
			}
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range everyCommand() {
		f.Add(EncodeCommand(c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		if got := EncodeCommand(c); !bytes.Equal(got, b) {
			t.Fatalf("%x is encoded again as %x", b, got)
		}
	})
}

func FuzzDecodeAnswers(f *testing.F) {
	for _, o := range everyOutcome() {
		f.Add(AppendOutcome(nil, o))
	}
	for _, e := range everyEvent() {
		f.Add(AppendEvent(nil, e))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := known(DecodeOutcome, outcomeBits)(b); err == nil {
			if got := AppendOutcome(nil, o); !bytes.Equal(got, b) {
				t.Fatalf("outcome %x is encoded again as %x", b, got)
			}
		}
		if e, err := known(DecodeEvent, eventBits)(b); err == nil {
			if got := AppendEvent(nil, e); !bytes.Equal(got, b) {
				t.Fatalf("event %x is encoded again as %x", b, got)
			}
		}
		_, _ = DecodeOutcome(b) // fields of a later version: no panic
		_, _ = DecodeEvent(b)
	})
}
