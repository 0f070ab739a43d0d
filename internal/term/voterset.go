package term

import "github.com/wardmote/wardmote/internal/wire"

// voterNews is the state of the voters as announced last.
type voterNews struct {
	set wire.VoterSet
	announcement
}

// announcement numbers the announcements of all terms of this node. A subscriber of
// this node itself outlives a term.
type announcement struct {
	term   uint64
	number uint64 // 0: none yet
}

// AnnounceVoters tells every subscriber the state of the voters. A member that
// attaches later is told when it attaches.
func (t *Term) AnnounceVoters(set wire.VoterSet) {
	t.mu.Lock()
	t.voters = voterNews{set, announcement{t.cfg.Term, t.voters.number + 1}}
	subscribers := make([]*Subscriber, 0, len(t.subscribers))
	for s := range t.subscribers {
		if s.attached.Load() {
			subscribers = append(subscribers, s)
		}
	}
	t.mu.Unlock()
	for _, s := range subscribers {
		t.tellVoters(s)
	}
}

// tellVoters tells s the state of the voters, unless s knows it. Announcements
// reach each subscriber in order.
func (t *Term) tellVoters(s *Subscriber) {
	if s.Voters == nil {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.attached.Store(true)
	t.mu.Lock()
	news := t.voters
	t.mu.Unlock()
	if news.number > 0 && news.announcement != s.told {
		s.told = news.announcement
		s.Voters(news.set)
	}
}
