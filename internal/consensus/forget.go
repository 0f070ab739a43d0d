package consensus

// forgetLeft closes the streams to the servers that are in neither the latest nor the
// committed configuration, and forgets their reach. Raft does not tell a transport which
// servers have left, and nobody reads a stream that is not in use: its end would be noticed
// by the next exchange, which never comes. In memory each restart of a member is another
// server, so the streams would take a descriptor each, and once they age a dial each, for
// as long as this raft runs.
func (r *Raft) forgetLeft() {
	listed := map[string]bool{r.id: true}
	for _, s := range r.Servers() {
		listed[s.ID] = true
	}
	c, _ := r.fsm.configuration()
	for _, s := range c.Servers {
		listed[string(s.ID)] = true
	}
	r.trans.pool.forget(listed)
	r.reach.forget(listed)
}

// forget closes the streams to all servers but the listed ones. A stream in use is
// closed after the exchange.
func (p *pool) forget(listed map[string]bool) {
	var left []*dialled
	p.mu.Lock()
	for c := range p.all {
		if !listed[c.id] {
			c.old = true
		}
	}
	for id, idle := range p.idle {
		if !listed[id] {
			left = append(left, idle...)
			delete(p.idle, id)
		}
	}
	p.mu.Unlock()
	for _, c := range left {
		p.drop(c)
	}
}

// forget forgets all servers but the listed ones.
func (r *reach) forget(listed map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.down {
		if !listed[id] {
			delete(r.down, id)
			delete(r.answered, id)
		}
	}
}
