package term

import (
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

var (
	errNotLeader  = errors.New("cluster: this node does not lead in the term")
	errStalled    = errors.New("cluster: the store does not answer")
	errNotFounded = errors.New("cluster: the founding of the cluster is not known here")
)

// Establish makes this node the leader in cfg.Term, once raft has won the term,
// and returns the started Term. Before the Term starts, every earlier entry is
// applied and LeaderStart of the term is committed, together with Found in a new
// cluster and with a Raise if every server reads a later format.
//
// barrier waits until this voter has applied every entry before it. founding is
// the value agreed on by the founders, or nil if the value has not come here yet.
// readable returns the newest format read by all servers of the raft
// configuration; Establish calls readable behind the barrier.
//
// After an error nothing runs. The caller tries again after
// timing.EstablishAgain, for as long as raft leads in the term.
func Establish(cfg Config, barrier func() error, founding *wire.Founding, readable func() int) (*Term, error) {
	if cfg.Log.Stalled() > timing.StoreStalled {
		return nil, errStalled
	}
	// Raft announces leadership before the table has caught up.
	if err := barrier(); err != nil {
		return nil, err
	}
	if !cfg.Log.Leads(cfg.Term) {
		return nil, errNotLeader
	}
	if err := cfg.Table.Parted(); err != nil {
		return nil, err
	}
	if founding == nil {
		return nil, errNotFounded
	}
	commands := openingCommands(cfg, founding, readable())
	result, code := cfg.Log.Commit(machine.EncodeCommands(commands))
	outcomes, _ := result.([]machine.Outcome)
	if code != wire.CodeOK || len(outcomes) != len(commands) {
		return nil, fmt.Errorf("cluster: the first entry of term %d was not committed: code %d", cfg.Term, code)
	}
	// WrongTerm with this very term: this node led in the term before, and
	// doubted. The entries in flight of the earlier Term came before the barrier.
	if o := outcomes[0]; o.Code != machine.OK && (o.Code != machine.WrongTerm || o.Limit != cfg.Term) {
		cfg.Logger.Warn("leadership refused by the table", "term", cfg.Term, "table", o.Limit,
			"next", "report this with the logs of all voters: raft elected this member in a term older than its table")
		return nil, fmt.Errorf("cluster: leadership in term %d refused by a table in term %d", cfg.Term, o.Limit)
	}
	if !cfg.Log.Leads(cfg.Term) {
		return nil, errNotLeader
	}
	t := New(cfg)
	t.Start()
	cfg.Logger.Info("leading", "term", cfg.Term, "next", "nothing")
	return t, nil
}

// openingCommands returns the commands of a term's first entry.
func openingCommands(cfg Config, founding *wire.Founding, readable int) []machine.Command {
	commands := []machine.Command{machine.LeaderStart{Term: cfg.Term}}
	var present machine.ClusterID // zero before the founding; another ID in the table that a successor goes on from
	cfg.Table.View(func(m *machine.State) { present, _ = m.Cluster() })
	if present != founding.Cluster {
		commands = append(commands, machine.Found{
			Cluster: founding.Cluster,
			// Within the machine's limits: a cluster whose Found is refused never grants.
			Floor: min(max(machine.Token(founding.Floor), 1), machine.MaxToken),
			TTL:   min(max(founding.TTL, machine.MinTTL), machine.MaxTTL),
		})
	}
	if readable > cfg.Table.Format() {
		commands = append(commands, machine.Raise{Term: cfg.Term, Format: uint64(readable)})
	}
	return commands
}
