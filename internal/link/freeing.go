package link

import (
	"context"

	"github.com/wardmote/wardmote/internal/replica"
)

// freeing marks the context of a command that does nothing but free keys. While no
// leader is found, such a command is given up as soon as every other member has
// said that it ends: there is nobody left that could want the keys, and a process
// that ends beside the others would wait for nothing. All other commands go on
// waiting, since other members may come.
type freeing struct{ context.Context }

// hears returns replica.ErrAllEnd if the command of ctx is pointless, since nobody
// is left to hear it, and otherwise two channels, nil for other commands, to look
// again as soon as one of them is closed.
func (k *Link) hears(ctx context.Context) (gossiped, proved <-chan struct{}, err error) {
	if _, ok := ctx.(freeing); !ok {
		return nil, nil, nil
	}
	gossiped, proved = k.cfg.Gossiped(), k.cfg.Proved()
	if k.cfg.AllEnd() {
		return nil, nil, replica.ErrAllEnd
	}
	return gossiped, proved, nil
}
