package term

import (
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// Values answers q from the table, once a round begun after the reading has confirmed
// the leader: see Read. It never waits for a change.
func (t *Term) Values(q replica.ValuesQuery, done func(replica.ValuesPage, wire.Code)) (cancel func()) {
	return values(t, "", q, whole[replica.ValuesPage], done)
}

// values is Values for a member, "" for this node, with the answer in another form.
func values[B any](t *Term, from string, q replica.ValuesQuery, form func(*replica.ValuesPage) (B, int), done func(B, wire.Code)) (cancel func()) {
	if t.held.full(from) {
		fail(done)(wire.CodeBusy)
		return func() {}
	}
	var a replica.ValuesPage
	t.table.View(func(m *machine.State) { a.Values, a.More = m.Values(q.Prefix, q.From, q.Limit, replica.MaxPageBytes) })
	b, size := form(&a)
	answerAfterRound(t, from, b, size, done)
	return func() {}
}

// Sessions answers q like Values. With q.Gone set, Sessions waits until no session has
// the Ref; cancel ends the waiting.
func (t *Term) Sessions(q replica.SessionsQuery, done func(replica.SessionsPage, wire.Code)) (cancel func()) {
	return sessions(t, "", q, whole[replica.SessionsPage], done)
}

// sessions is Sessions for a member, "" for this node, with the answer in another form.
func sessions[B any](t *Term, from string, q replica.SessionsQuery, form func(*replica.SessionsPage) (B, int), done func(B, wire.Code)) (cancel func()) {
	answer := func(a replica.SessionsPage) {
		b, size := form(&a)
		answerAfterRound(t, from, b, size, done)
	}
	if q.Gone {
		return t.watches.add(&watch{
			from:    from,
			subject: aSession,
			session: q.From,
			look: func() func() int {
				if t.isOpen(q.From) {
					return nil
				}
				return func() int { answer(replica.SessionsPage{}); return 0 }
			},
			fail: fail(done),
		})
	}
	if t.held.full(from) {
		fail(done)(wire.CodeBusy)
		return func() {}
	}
	answer(t.listSessions(q))
	return func() {}
}

// Describe implements replica.Times.
func (t *Term) Describe(grants []machine.Grant) { t.keeper.describe(grants) }

// TimesLeft implements replica.Times.
func (t *Term) TimesLeft(sessions []machine.SessionStatus) []uint64 {
	return t.keeper.timesLeft(sessions)
}

func (t *Term) isOpen(ref machine.SessionRef) (open bool) {
	t.table.View(func(m *machine.State) { _, open = m.SessionOf(ref) })
	return open
}

// listSessions reads a page of sessions.
func (t *Term) listSessions(q replica.SessionsQuery) (a replica.SessionsPage) {
	var list []machine.SessionStatus
	t.table.View(func(m *machine.State) { list = m.SessionsFrom(q.From, q.Limit+1) })
	left := t.keeper.timesLeft(list)
	room := replica.MaxPageBytes
	for i := range list {
		st := &list[i]
		room -= len(st.Client) + len(st.Node) + len(st.Meta)
		if i == q.Limit || i > 0 && room < 0 {
			a.More, a.NextFrom = true, st.ID.Ref()
			return a
		}
		a.Sessions = append(a.Sessions, replica.ListedSession{
			Ref: st.ID.Ref(), Client: st.Client, Node: st.Node, TTL: st.TTL, Opened: st.Opened, Left: left[i],
			Ending: st.Revoked || st.Ending, Keys: st.Keys, Waits: st.Waits, Meta: st.Meta,
		})
	}
	return a
}

func (m *memberStream) values(q *stream.Request) {
	var query replica.ValuesQuery
	if wire.Unmarshal(q.Body, &query) != nil || query.Check() != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	m.startRead(q, func(answer func([]byte, wire.Code)) func() {
		return values(m.term, m.node, query, encoded[replica.ValuesPage], answer)
	})
}

func (m *memberStream) sessions(q *stream.Request) {
	var query replica.SessionsQuery
	if wire.Unmarshal(q.Body, &query) != nil || query.Check() != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	m.startRead(q, func(answer func([]byte, wire.Code)) func() {
		return sessions(m.term, m.node, query, encoded[replica.SessionsPage], answer)
	})
}
