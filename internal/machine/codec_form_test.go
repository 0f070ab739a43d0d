package machine

import (
	"errors"
	"reflect"
	"testing"
)

// TestOneFormForEachValue: a second form of a value is refused, and so is a count
// over a limit.
func TestOneFormForEachValue(t *testing.T) {
	command := func(b []byte) error { _, err := DecodeCommand(b); return err }
	outcome := func(b []byte) error { _, err := DecodeOutcome(b); return err }
	event := func(b []byte) error { _, err := DecodeEvent(b); return err }
	// raw is an Acquire of key k, from the bits on.
	raw := func(rest ...byte) []byte {
		a := session16("a")
		return append(append(append([]byte{kindAcquire}, a[:]...), 1, 1, 'k'), rest...)
	}
	acquire := func(c Acquire) []byte { return EncodeCommand(c) }
	for name, tc := range map[string]struct {
		decode func([]byte) error
		b      []byte
		want   error
	}{
		"plain acquire":                {command, raw(0, 0, 0), nil},
		"known bit of an acquire":      {command, raw(acquireTry, 0, 0), nil},
		"unknown bit of an acquire":    {command, raw(acquireBits+1, 0, 0), errBits},
		"keys of none":                 {command, raw(acquireKeys, 0, 0, 0), errForm},
		"max waiters of 0":             {command, raw(acquireMaxWaiters, 0, 0, 0), errForm},
		"under none":                   {command, raw(acquireUnder, 0, 0, 0), errForm},
		"freed none":                   {command, raw(acquireFreed, 0, 0, 0), errForm},
		"shared":                       {command, raw(0, specMode, byte(Shared), 0), nil},
		"exclusive with a bit":         {command, raw(0, specMode, 0, 0), errForm},
		"capacity of 0":                {command, raw(0, specOf, 0, 0), errForm},
		"priority of 0":                {command, raw(0, specPriority, 0, 0), errForm},
		"delay of 0":                   {command, raw(0, specDelay, 0, 0), errForm},
		"meta of no bytes":             {command, raw(0, specMeta, 0, 0), errForm},
		"token of 0":                   {command, raw(0, 0x80, 0x01, 0, 0), errForm},
		"bits not in their short form": {command, raw(0, 0x80, 0x00, 0), errVarint},
		"permits of 0":                 {command, raw(0, 0x80, 0x02, 0, 0), errForm},
		"block of 0":                   {command, raw(0, 0x80, 0x04, 0, 0), errForm},
		"unknown bit of a spec":        {command, raw(0, 0x80, 0x08, 0, 0), errBits},
		"fade of 2":                    {command, append(EncodeCommand(SetValue{Rev: 1})[:20:20], 2, 0), errFlag},
		"as many keys as there may be": {command, acquire(Acquire{Keys: make([]string, MaxKeys)}), nil},
		"more keys":                    {command, acquire(Acquire{Keys: make([]string, MaxKeys+1)}), errLimit},
		"more keys than there are":     {command, raw(acquireKeys, 4, 0, 0), errShort},
		"under many":                   {command, acquire(Acquire{Under: make([]Token, MaxUnder)}), nil},
		"under more":                   {command, acquire(Acquire{Under: make([]Token, MaxUnder+1)}), errLimit},
		"upgrade under more":           {command, EncodeCommand(Upgrade{Under: make([]Token, MaxUnder+1)}), errLimit},
		"no holder":                    {outcome, append([]byte{1, outcomeHolder}, make([]byte, 20)...), errForm},
		"token 0 of an outcome":        {outcome, []byte{1, outcomeToken, 0}, errForm},
		"behind 0":                     {outcome, []byte{1, outcomeBehind, 0}, errForm},
		"no value":                     {outcome, []byte{1, outcomeValue, 0}, errForm},
		"no cycle":                     {outcome, []byte{1, 0x80, 0x02, 0}, errForm},
		"long cycle":                   {outcome, AppendOutcome(nil, Outcome{Cycle: make([]Link, MaxCycle)}), nil},
		"longer cycle":                 {outcome, AppendOutcome(nil, Outcome{Cycle: make([]Link, MaxCycle+1)}), errLimit},
		"waiters too big":              {outcome, []byte{1, outcomeWaiters, 0xff, 0xff, 0xff, 0xff, 0x7f}, errLimit},
		"trailing byte of an outcome":  {outcome, []byte{1, 0, 0}, errTrailing},
		"no session of an event":       {event, append([]byte{1, eventSession}, make([]byte, 16)...), errForm},
		"no key of an event":           {event, []byte{1, eventKey, 0}, errForm},
		"no reason":                    {event, []byte{1, 0x80, 0x01, 0}, errForm},
		"trailing byte of an event":    {event, []byte{1, 0, 0}, errTrailing},
	} {
		if err := tc.decode(tc.b); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestKeyAndKeysAreTwoThings: a request for a key differs from a request for a set
// with only this key. A request for both, refused by Apply, keeps both.
func TestKeyAndKeysAreTwoThings(t *testing.T) {
	for _, want := range []Acquire{{Key: "a"}, {Keys: []string{"a"}}, {Key: "a", Keys: []string{"a"}}, {Keys: []string{""}}, {}} {
		got, err := DecodeCommand(EncodeCommand(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v is decoded as %#v, %v", want, got, err)
		}
	}
	got, err := DecodeCommand(EncodeCommand(Acquire{Key: "a", Keys: []string{}, Under: []Token{}, Seen: []uint64{}}))
	if err != nil || !reflect.DeepEqual(got, Acquire{Key: "a"}) {
		t.Errorf("empty slices are decoded as %#v, %v", got, err)
	}
}

// The bits in front of fields, as the golden files have them.
const (
	specMode     = 1 << 0
	specOf       = 1 << 1
	specPriority = 1 << 3
	specDelay    = 1 << 4
	specMeta     = 1 << 6

	outcomeToken   = 1 << 0
	outcomeBehind  = 1 << 1
	outcomeWaiters = 1 << 2
	outcomeValue   = 1 << 3
	outcomeHolder  = 1 << 5
	outcomeBits    = 1<<10 - 1

	eventSession = 1 << 0
	eventKey     = 1 << 2
	eventBits    = 1<<13 - 1
)

const (
	recordLast = 1 << iota
	recordIdle
	recordValue
	recordFade
	recordUnclean
	recordHolders
	recordQueue
)

const (
	grantSet = 1 << iota
	grantUnseen
	grantWaited
	grantContended
	grantAsked
	grantBroken
	grantRev
)

const (
	waiterSet = 1 << iota
	waiterUpgrade
	waiterPassed
	waiterUnder
	waiterBits = 1<<iota - 1
)
