package cluster

import (
	"context"

	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/transport"
)

func init() {
	replica.Alone = func(ctx context.Context) (any, error) {
		n, err := Start(ctx, Config{
			Name: "local", Cluster: "local", Bind: "127.0.0.1:1", InitialSize: 1,
			// A network of its own: nobody else has an address there.
			Network: transport.NewMemory(1).Host("127.0.0.1"),
			alone:   true,
		})
		if err != nil {
			return nil, err // not n, which would be an interface that is not nil
		}
		return n, nil
	}
}
