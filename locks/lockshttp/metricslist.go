package lockshttp

import (
	"maps"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/locks"
)

// scrape has the figures for one answer.
type scrape struct {
	client  *meter.Client
	figures meter.ClientFigures
	node    *meter.Node
	state   meter.Figures
	labels  []*meter.Series // nil: none
}

// family is a family of metrics, and the function that writes its samples.
type family struct {
	meter.Family
	when  func(*scrape) bool // nil: always
	write func(e *meter.Encoder, name string, s *scrape)
}

// families are all metrics, in the order of an answer. docs/metrics.md has the same list.
var families = slices.Concat(clusterFamilies, voterFamilies, leaderFamilies, clientFamilies, keyFamilies)

var clusterFamilies = []family{
	info("wardmote_build_info", "The version of wardmote in this process.", func(e *meter.Encoder, name string, s *scrape) {
		e.Count(name, 1, "version", s.state.Version)
	}),
	gaugeBool("wardmote_quorum", "1 while a leader serves this member, else 0.", nil, func(s *scrape) bool { return s.state.Quorum }),
	gaugeSeconds("wardmote_quorum_age_seconds", "For how long wardmote_quorum has had its value.", nil, func(s *scrape) float64 { return s.state.QuorumFor.Seconds() }),
	gaugeBool("wardmote_granting", "1 once the founding wait is over and locks are granted, else 0.", nil, func(s *scrape) bool { return s.state.Granting }),
	counter("wardmote_quorum_losses_total", "How often this member has missed its leader for long enough to tell.", func(s *scrape) uint64 { return s.node.QuorumLosses.Load() }),
	counter("wardmote_leader_changes_total", "How often another leader, or another term, began to serve this member.", func(s *scrape) uint64 { return s.node.LeaderChanges.Load() }),
	gauge("wardmote_members", "Members that live, as gossip sees them.", nil, func(s *scrape) int { return s.state.Members }),
	gauge("wardmote_conflicts", "Conflicts that last: two clusters or two processes of one name, or contradicting configurations.", nil, func(s *scrape) int { return s.state.Conflicts }),
	gauge("wardmote_voters_wanted", "Voters that the cluster wants.", nil, func(s *scrape) int { return s.state.Wanted }),
	gauge("wardmote_voters_present", "Voters whose processes are not known to have ended.", nil, func(s *scrape) int { return s.state.Present }),
	gauge("wardmote_voters_missing", "Wanted voters that do not bear a failure of others: absent, out of the leader's reach, behind or leaving. Without a leader: absent.", nil, func(s *scrape) int {
		have := s.state.Present
		if s.state.Quorum && s.state.Told {
			have = s.state.Working
		}
		return max(0, s.state.Wanted-have)
	}),
	gauge("wardmote_voters_spare", "So many more voters may fail now without loss of the quorum.", nil, func(s *scrape) int { return s.state.Bears }),
	gaugeSeconds("wardmote_voters_age_seconds", "Age of the leader's last word on the voters.", func(s *scrape) bool { return s.state.Told }, func(s *scrape) float64 { return s.state.ToldFor.Seconds() }),
	perKind("wardmote_rejected_total", meter.KindCounter, "Messages and connections that this member refused, by kind: see docs/refused.md.", func(s *scrape) map[string]uint64 { return s.state.Refused }),
	perKind("wardmote_connections", meter.KindGauge, "Connections with other members, accepted and dialled, by kind.", func(s *scrape) map[string]uint64 {
		out := make(map[string]uint64)
		for kind, n := range s.state.Connections {
			out[kind] = uint64(n)
		}
		return out
	}),
	counterBytes("wardmote_network_sent_bytes_total", "Bytes sent from this member's port.", func(s *scrape) uint64 { return s.node.SentBytes.Load() }),
	counterBytes("wardmote_network_received_bytes_total", "Bytes received on this member's port.", func(s *scrape) uint64 { return s.node.ReceivedBytes.Load() }),
	gaugeBytes("wardmote_peer_memory_bytes", "Bytes held for messages of other members.", nil, func(s *scrape) int { return s.state.BudgetBytes }),
}

var voterFamilies = []family{
	gaugeBool("wardmote_voter", "1 if this member votes, else 0.", nil, func(s *scrape) bool { return s.state.Votes }),
	counter("wardmote_elections_total", "Elections in which this member was a candidate.", func(s *scrape) uint64 { return s.node.Elections.Load() }),
	gauge("wardmote_raft_term", "The term of this member's raft.", hasRaft, func(s *scrape) int { return int(s.state.Term) }),
	gauge("wardmote_raft_last_index", "The index of the newest entry in this member's log.", hasRaft, func(s *scrape) int { return int(s.state.LastIndex) }),
	gauge("wardmote_raft_applied_index", "The index of the newest entry that this member's table has applied.", hasRaft, func(s *scrape) int { return int(s.state.AppliedIndex) }),
	gaugeSeconds("wardmote_raft_leader_silence_seconds", "Time since this voter heard from the leader; 0 on the leader.", hasRaft, func(s *scrape) float64 { return s.state.LeaderSilence.Seconds() }),
	histogram("wardmote_store_write_seconds", "Writes of raft's log and votes, with the flush to disk where the member has a Dir.", func(s *scrape) meter.Histogram { return s.node.Writes.Read() }),
	gaugeSeconds("wardmote_store_stalled_seconds", "How long the running write has been running; 0 if none runs.", hasRaft, func(s *scrape) float64 { return s.state.Stalled.Seconds() }),
	gaugeSeconds("wardmote_table_age_seconds", "Age of the figures of the table: of this member's copy, or of the leader's last word.", hasTable, func(s *scrape) float64 { return s.state.TableAge.Seconds() }),
	gauge("wardmote_table_sessions", "Open sessions.", hasTable, func(s *scrape) int { return s.state.Sessions }),
	gauge("wardmote_table_keys", "Keys that are held or waited for.", hasTable, func(s *scrape) int { return s.state.Keys }),
	gauge("wardmote_table_holders", "Holders, one for each of their keys.", hasTable, func(s *scrape) int { return s.state.Grants }),
	gauge("wardmote_table_waiters", "Waiters, one for each of their keys.", hasTable, func(s *scrape) int { return s.state.Waits }),
	gauge("wardmote_table_groups", "Groups of shards with callers.", hasTable, func(s *scrape) int { return s.state.Groups }),
	gauge("wardmote_table_shards", "Shards of these groups.", hasTable, func(s *scrape) int { return s.state.Shards }),
}

var leaderFamilies = []family{
	gaugeBool("wardmote_leader", "1 while this member leads and serves, else 0.", nil, func(s *scrape) bool { return s.state.Leads }),
	counter("wardmote_leader_terms_total", "Terms in which this member led and served.", func(s *scrape) uint64 { return s.node.Terms.Load() }),
	histogram("wardmote_commit_seconds", "Log entries of this leader, from the proposal until applied here.", func(s *scrape) meter.Histogram { return s.node.Commits.Read() }),
	counter("wardmote_commit_failures_total", "Log entries of this leader that were refused or whose fate is unknown.", func(s *scrape) uint64 { return s.node.CommitsFailed.Load() }),
	counter("wardmote_commit_commands_total", "Commands in the log entries that this leader committed.", func(s *scrape) uint64 { return s.node.Commands.Load() }),
	counterBytes("wardmote_commit_bytes_total", "Bytes of the log entries that this leader committed.", func(s *scrape) uint64 { return s.node.EntryBytes.Load() }),
	histogram("wardmote_confirm_round_seconds", "Rounds in which a majority of the voters confirmed this leader.", func(s *scrape) meter.Histogram { return s.node.Rounds.Read() }),
	counter("wardmote_confirm_round_failures_total", "Rounds in which no majority confirmed this leader.", func(s *scrape) uint64 { return s.node.RoundsFailed.Load() }),
	gauge("wardmote_leader_queue_commands", "Commands that wait for the next log entry of this leader.", nil, func(s *scrape) int { return s.state.QueueCommands }),
	gaugeBytes("wardmote_leader_queue_bytes", "Bytes of the commands that wait for the next log entry of this leader.", nil, func(s *scrape) int { return s.state.QueueBytes }),
	perMember("wardmote_leader_queue_largest_commands", "Commands that wait for the next log entry, of the member with most of them.", func(s *scrape) (string, int) { return s.state.Noisiest, s.state.NoisiestCommands }),
	gauge("wardmote_leader_members", "Members that this leader serves, itself included.", nil, func(s *scrape) int { return s.state.Attached }),
}

var clientFamilies = []family{
	gaugeBool("wardmote_session", "1 while this client has a session, else 0.", nil, func(s *scrape) bool { return s.figures.Session }),
	gaugeSeconds("wardmote_session_ttl_seconds", "The TTL of this client's session; 0 without a session.", nil, func(s *scrape) float64 { return s.figures.TTL.Seconds() }),
	gaugeSeconds("wardmote_session_trust_seconds", "For how long this client may trust its locks without a further beat; 0 without a session.", nil, func(s *scrape) float64 { return s.figures.Trust.Seconds() }),
	counter("wardmote_sessions_opened_total", "Sessions that this client has opened.", func(s *scrape) uint64 { return s.client.Opened.Load() }),
	perReason("wardmote_sessions_ended_total", "Sessions of this client that have ended, by reason.", func(s *scrape) *[meter.MaxReasons]meter.Counter { return &s.client.SessionsLost }),
	histogram("wardmote_beat_seconds", "Beats that were confirmed, from sending until the confirmation.", func(s *scrape) meter.Histogram { return s.client.Beats.Read() }),
	counter("wardmote_beat_failures_total", "Beats that were not confirmed.", func(s *scrape) uint64 { return s.client.BeatsFailed.Load() }),
	histogram("wardmote_lock_wait_seconds", "Requests that were granted, from the request until the grant. Shards are not counted here.", func(s *scrape) meter.Histogram { return s.client.Waits.Read() }),
	{Family: meter.Family{Name: "wardmote_lock_failures_total", Kind: meter.KindCounter, Help: "Requests for locks that were not granted, by reason."}, write: func(e *meter.Encoder, name string, s *scrape) {
		for kind := range s.client.Failed {
			e.Count(name, s.client.Failed[kind].Load(), "reason", meter.FailureNames[kind])
		}
	}},
	histogram("wardmote_lock_hold_seconds", "Locks that ended, from the grant until the release or the loss. Shards are not counted here.", func(s *scrape) meter.Histogram { return s.client.Holds.Read() }),
	gauge("wardmote_lock_held", "Locks that this client holds. Shards are not counted here.", nil, func(s *scrape) int { return int(s.client.Held.Load()) }),
	gauge("wardmote_lock_waiting", "Requests of this client without a verdict.", nil, func(s *scrape) int { return s.figures.Waiting }),
	perReason("wardmote_lock_losses_total", "Locks and shards of this client that were lost, by reason.", func(s *scrape) *[meter.MaxReasons]meter.Counter { return &s.client.Lost }),
	counter("wardmote_lock_retries_total", "Requests that were made again because their session was lost.", func(s *scrape) uint64 { return s.client.Retried.Load() }),
	counter("wardmote_release_failures_total", "Releases and withdrawals that did not reach the cluster in time, and are sent again.", func(s *scrape) uint64 { return s.client.CleanupsFailed.Load() }),
	counter("wardmote_tokens_refused_total", "Tokens that guards refused, as counted by lockshttp.CountRefusals.", func(s *scrape) uint64 { return s.client.TokensRefused.Load() }),
	gauge("wardmote_shards_owned", "Shards that this client owns.", nil, func(s *scrape) int { return int(s.client.Shards.Load()) }),
	counter("wardmote_shards_gained_total", "Shards that this client came to own.", func(s *scrape) uint64 { return s.client.ShardsGained.Load() }),
	counter("wardmote_shards_ended_total", "Shards that this client ceased to own.", func(s *scrape) uint64 { return s.client.ShardsEnded.Load() }),
}

// keyFamilies are there with Options.Label alone.
var keyFamilies = []family{
	keyed(meter.Family{Name: "wardmote_key_wait_seconds", Kind: meter.KindHistogram, Unit: "seconds", Help: "As wardmote_lock_wait_seconds, by the label of the key."}, func(e *meter.Encoder, name string, s *meter.Series) {
		e.Histogram(name, s.Waits.Read(), "key", s.Label)
	}),
	keyed(meter.Family{Name: "wardmote_key_hold_seconds", Kind: meter.KindHistogram, Unit: "seconds", Help: "As wardmote_lock_hold_seconds, by the label of the key."}, func(e *meter.Encoder, name string, s *meter.Series) {
		e.Histogram(name, s.Holds.Read(), "key", s.Label)
	}),
	keyed(meter.Family{Name: "wardmote_key_held", Help: "As wardmote_lock_held, by the label of the key."}, func(e *meter.Encoder, name string, s *meter.Series) {
		e.Int(name, s.Held(), "key", s.Label)
	}),
	keyed(meter.Family{Name: "wardmote_key_losses_total", Kind: meter.KindCounter, Help: "Locks of this client that were lost, by the label of the key."}, func(e *meter.Encoder, name string, s *meter.Series) {
		e.Count(name, s.Lost.Load(), "key", s.Label)
	}),
}

func hasRaft(s *scrape) bool  { return s.state.Raft }
func hasTable(s *scrape) bool { return s.state.Table }

func gauge(name, help string, when func(*scrape) bool, read func(*scrape) int) family {
	return family{meter.Family{Name: name, Help: help}, when, func(e *meter.Encoder, name string, s *scrape) { e.Int(name, int64(read(s))) }}
}

func gaugeBytes(name, help string, when func(*scrape) bool, read func(*scrape) int) family {
	f := gauge(name, help, when, read)
	f.Unit = "bytes"
	return f
}

func gaugeBool(name, help string, when, read func(*scrape) bool) family {
	return family{meter.Family{Name: name, Help: help}, when, func(e *meter.Encoder, name string, s *scrape) { e.Bool(name, read(s)) }}
}

func gaugeSeconds(name, help string, when func(*scrape) bool, read func(*scrape) float64) family {
	return family{meter.Family{Name: name, Unit: "seconds", Help: help}, when, func(e *meter.Encoder, name string, s *scrape) { e.Float(name, max(0, read(s))) }}
}

func counter(name, help string, read func(*scrape) uint64) family {
	return family{Family: meter.Family{Name: name, Kind: meter.KindCounter, Help: help}, write: func(e *meter.Encoder, name string, s *scrape) { e.Count(name, read(s)) }}
}

func counterBytes(name, help string, read func(*scrape) uint64) family {
	f := counter(name, help, read)
	f.Unit = "bytes"
	return f
}

func histogram(name, help string, read func(*scrape) meter.Histogram) family {
	return family{Family: meter.Family{Name: name, Kind: meter.KindHistogram, Unit: "seconds", Help: help}, write: func(e *meter.Encoder, name string, s *scrape) {
		e.Histogram(name, read(s))
	}}
}

func info(name, help string, write func(e *meter.Encoder, name string, s *scrape)) family {
	return family{Family: meter.Family{Name: name, Kind: meter.KindInfo, Help: help}, write: write}
}

// perKind is a family with a label for kinds of things, of which there are few.
func perKind(name string, kind meter.Kind, help string, read func(*scrape) map[string]uint64) family {
	return family{Family: meter.Family{Name: name, Kind: kind, Help: help}, write: func(e *meter.Encoder, name string, s *scrape) {
		by := read(s)
		for _, k := range slices.Sorted(maps.Keys(by)) {
			e.Count(name, by[k], "kind", strings.ReplaceAll(k, " ", "_"))
		}
	}}
}

// perMember is a gauge of one member at a time; without one there is no sample.
func perMember(name, help string, read func(*scrape) (member string, n int)) family {
	return family{Family: meter.Family{Name: name, Kind: meter.KindGauge, Help: help}, write: func(e *meter.Encoder, name string, s *scrape) {
		if member, n := read(s); member != "" {
			e.Count(name, uint64(n), "member", member)
		}
	}}
}

// perReason is a family of counters with a label for the reasons of package locks.
func perReason(name, help string, read func(*scrape) *[meter.MaxReasons]meter.Counter) family {
	return family{Family: meter.Family{Name: name, Kind: meter.KindCounter, Help: help}, write: func(e *meter.Encoder, name string, s *scrape) {
		by := read(s)
		for r := range locks.Reason(meter.MaxReasons) {
			if reason, ok := reasonLabels[r]; ok {
				e.Count(name, by[r].Load(), "reason", reason)
			}
		}
	}}
}

// reasonLabels are the values of the label "reason" for the reasons of package locks.
// They stay as they are when a text changes.
var reasonLabels = map[locks.Reason]string{
	locks.SessionExpired:    "session_expired",
	locks.QuorumUnreachable: "quorum_unreachable",
	locks.HostSlept:         "host_slept",
	locks.ProcessPaused:     "process_paused",
	locks.NodeStopped:       "node_stopped",
	locks.ClientClosed:      "client_closed",
	locks.Broken:            "broken",
	locks.ClusterReplaced:   "cluster_replaced",
	locks.SessionEnded:      "session_ended",
}

func keyed(f meter.Family, write func(*meter.Encoder, string, *meter.Series)) family {
	return family{f, func(s *scrape) bool { return s.labels != nil }, func(e *meter.Encoder, name string, s *scrape) {
		for _, series := range s.labels {
			write(e, name, series)
		}
	}}
}
