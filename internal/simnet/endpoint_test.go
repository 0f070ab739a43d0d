package simnet

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestPacketsInFlightAreSwallowedByACut(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetLink(ip(1), ip(2), Link{Delay: time.Second})
		check(t, e[1].WriteTo([]byte("x"), e[2].Addr()))
		sim.Cut(ip(1), ip(2))
		time.Sleep(time.Minute)
		sim.Heal()
		time.Sleep(time.Minute)
		if unread(e[2]) != 0 {
			t.Error("a packet survived the cut")
		}
	})
}

func TestPacketsKeepTheirOrderAtEqualDelay(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
			sim.SetDefault(Link{Delay: delay})
			for i := range uint32(packetQueue) {
				check(t, e[1].WriteTo(binary.BigEndian.AppendUint32(nil, i), e[2].Addr()))
			}
			buf := make([]byte, 4)
			for i := range uint32(packetQueue) {
				if _, _, err := e[2].ReadFrom(buf); err != nil || binary.BigEndian.Uint32(buf) != i {
					t.Fatalf("packet %d in place %d, %v", binary.BigEndian.Uint32(buf), i, err)
				}
			}
		})
	}
}

func TestFullQueueDropsPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		for range packetQueue + 100 {
			check(t, e[1].WriteTo([]byte("x"), e[2].Addr()))
		}
		if n := unread(e[2]); n != packetQueue {
			t.Errorf("%d packets are kept", n)
		}
	})
}
