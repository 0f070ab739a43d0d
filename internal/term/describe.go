package term

import "github.com/wardmote/wardmote/internal/member"

// describe takes the description that the process of s gives of itself.
//
// A description can cost a voter its vote: its own word says that it leaves. A certificate
// without the voter role says nothing about votes, and does not raise the bound of TTLs: with
// the bound rise the TTLs of all later sessions of the cluster. And under such a certificate without a
// name, any of its owners may claim to be the voter: then the description has no part that
// the voters depend on, and takes the place of no description of a voter.
func (t *Term) describe(s *Subscriber, meta member.Metadata) {
	if s.Mere {
		meta.Thin, meta.TTL = true, 0
	}
	t.mu.Lock()
	defer t.attachments.Wake()
	defer t.mu.Unlock()
	if s.Mere && s.Shared {
		for o := range t.streamsOf(s) {
			if !o.Mere {
				return
			}
		}
		meta = member.Metadata{Version: meta.Version, Cluster: meta.Cluster}
	}
	if _, joined := t.subscribers[s]; joined {
		t.described[s.process()] = meta
	}
}

// Described returns the description that a process has given of itself, on a stream
// that is open now. No other process can give it, unlike the description that gossip
// spreads.
func (t *Term) Described(name string, boot uint64) (meta member.Metadata, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	meta, ok = t.described[member.Process{Name: name, Boot: boot}]
	return meta, ok
}

// Attachments returns a channel that receives after each change of Described.
func (t *Term) Attachments() <-chan struct{} { return t.attachments }
