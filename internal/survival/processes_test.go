package survival

import (
	"math/bits"
	"strings"
)

type mask uint8

func (m mask) has(slot int) bool { return m>>slot&1 != 0 }
func (m mask) size() int         { return bits.OnesCount8(uint8(m)) }

// processes names at most one process of each slot, by two bits a slot: the
// present process, or an earlier process. No rule tells earlier processes apart.
type processes uint16

const (
	present processes = 1
	past    processes = 2
)

// processesOf names the present processes of some slots.
func processesOf(slots ...int) (p processes) {
	for _, slot := range slots {
		p = p.with(slot)
	}
	return p
}

func (p processes) with(slot int) processes    { return p&^(3<<(2*slot)) | present<<(2*slot) }
func (p processes) without(slot int) processes { return p &^ (3 << (2 * slot)) }
func (p processes) names(slot int) bool        { return p>>(2*slot)&3 != 0 }
func (p processes) live(slot int) bool         { return p>>(2*slot)&3 == present }

// restarted returns p after a restart of a slot: if p names the slot's process,
// this process is past.
func (p processes) restarted(slot int) processes {
	if p.names(slot) {
		return p&^(3<<(2*slot)) | past<<(2*slot)
	}
	return p
}

func (p processes) size() int { return bits.OnesCount16(uint16((p | p>>1) & 0x5555)) }

func (p processes) String() string {
	var b strings.Builder
	for slot := range mostSlots {
		if p.names(slot) {
			b.WriteString(slotName(slot))
		}
		if p.names(slot) && !p.live(slot) {
			b.WriteString("\u2020") // an earlier process
		}
	}
	return b.String()
}

func majority(n int) int { return n/2 + 1 }
