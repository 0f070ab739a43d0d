package link

import "github.com/wardmote/wardmote/internal/replica"

// hears returns replica.ErrAllEnd if a command that does nothing but free keys is
// pointless, since nobody is left to hear it, and otherwise two channels, nil for other
// commands, to look again as soon as one of them is closed.
//
// While no leader is found, such a command is given up as soon as every other member has
// said that it ends: there is nobody left that could want the keys, and a process
// that ends beside the others would wait for nothing. All other commands go on
// waiting, since other members may come.
func (k *Link) hears(frees bool) (gossiped, proved <-chan struct{}, err error) {
	if !frees {
		return nil, nil, nil
	}
	gossiped, proved = k.cfg.Gossiped(), k.cfg.Proved()
	if k.cfg.AllEnd() {
		return nil, nil, replica.ErrAllEnd
	}
	return gossiped, proved, nil
}
