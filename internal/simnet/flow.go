package simnet

import (
	"bytes"
	"sort"
	"time"
)

// flow is one direction of a stream. The callers of all methods hold mu.
//
// I1: size is the number of data bytes in queue and arrived.
// I2: queue is ordered by due, and unsent segments come last.
type flow struct {
	net      *Network
	route    route
	src, dst *stream

	queue   []segment // written, not yet arrived
	arrived bytes.Buffer
	size    int
	eof     bool // the end of the stream has arrived
	broken  bool // a reset was sent

	scheduled bool      // an event will call deliver
	cut       bool      // as seen by the last adapt
	cutAt     time.Time // since when
}

type segment struct {
	data   []byte
	kind   segmentKind
	due    time.Time
	unsent bool // the sender is frozen: due is not known yet
}

type segmentKind uint8

const (
	dataSegment segmentKind = iota
	eofSegment
	resetSegment
)

// discard forgets all segments under way.
func (f *flow) discard() {
	for _, g := range f.queue {
		f.size -= len(g.data)
	}
	f.queue = nil
}

// firstUnsent returns the position of the first unsent segment, by I2.
func (f *flow) firstUnsent() int {
	return sort.Search(len(f.queue), func(i int) bool { return f.queue[i].unsent })
}

// send puts a segment on its way, and copies data.
func (f *flow) send(data []byte, kind segmentKind) {
	if f.broken {
		return
	}
	f.broken = kind == resetSegment
	f.size += len(data)
	if kind == dataSegment {
		f.src.host.sent.write(len(data))
	}
	g := segment{data: data, kind: kind, unsent: f.src.host.frozen}
	now := time.Now()
	if !g.unsent {
		g.due = f.arrival(now)
		if len(f.queue) == 0 && !g.due.After(now) && !f.net.isCut(f.route) {
			f.arrive(g) // at once: arrive copies data
			return
		}
	}
	g.data = bytes.Clone(data)
	f.queue = append(f.queue, g)
	f.deliver(now)
}

// arrival draws when a segment sent now arrives: never before an earlier
// segment.
func (f *flow) arrival(now time.Time) time.Time {
	due := now.Add(f.net.travelTime(f.route, retransmission, maxRetransmits))
	if sent := f.firstUnsent(); sent > 0 && f.queue[sent-1].due.After(due) {
		return f.queue[sent-1].due
	}
	return due
}

// deliver moves the due segments to the other side, and schedules the next
// call for the rest.
func (f *flow) deliver(now time.Time) {
	if f.net.isCut(f.route) {
		return // adapt calls deliver again after the repair
	}
	for len(f.queue) > 0 && !f.queue[0].unsent && !f.queue[0].due.After(now) {
		g := f.queue[0]
		f.queue[0] = segment{}
		f.queue = f.queue[1:]
		f.arrive(g)
	}
	if len(f.queue) == 0 || f.queue[0].unsent || f.scheduled {
		return
	}
	f.scheduled = true
	f.net.at(f.queue[0].due, func() {
		f.scheduled = false
		f.deliver(time.Now())
	})
}

// arrive gives a segment to the receiving side.
func (f *flow) arrive(g segment) {
	d := f.dst
	if d.reset {
		f.size -= len(g.data)
		return
	}
	switch g.kind {
	case eofSegment:
		f.eof = true
		d.readers.Broadcast()
	case resetSegment:
		d.abort()
	case dataSegment:
		if d.closed { // nobody will read these bytes: the writer must know
			f.size -= len(g.data)
			d.out.send(nil, resetSegment)
			return
		}
		d.host.received.write(len(g.data))
		f.arrived.Write(g.data)
		d.readers.Broadcast()
	}
}

// adapt follows a change of the network: a thawed host sends its segments, a
// cut begins or ends the limit on silence, and a repaired link retransmits.
func (f *flow) adapt(now time.Time) {
	if f.src.dead() && f.dst.dead() {
		return
	}
	if !f.src.host.frozen {
		for i := f.firstUnsent(); i < len(f.queue); i++ {
			f.queue[i].due = f.arrival(now)
			f.queue[i].unsent = false
		}
	}
	cut := f.net.isCut(f.route)
	switch {
	case cut && !f.cut:
		f.cut, f.cutAt = true, now
		f.net.at(now.Add(silenceLimit), func() {
			if f.cut && f.cutAt.Equal(now) {
				f.src.abort()
				f.dst.abort()
			}
		})
	case !cut && f.cut:
		// Segments lost in the cut are retransmitted now.
		f.cut = false
		l, rng := f.net.quality(f.route)
		again := now.Add(l.latency(rng))
		for i := range f.queue {
			if g := &f.queue[i]; !g.unsent && g.due.Before(again) {
				g.due = again
			}
		}
	}
	f.deliver(now)
}
