package vpp

import (
	"context"
	"fmt"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/acl"

	"github.com/weftnet/weft/wire"
)

// Matches counts the packets for which a rule of an ACL decided: with a rule that opens sessions, mostly the first
// packet of each connection.
type Matches struct{ Packets, Bytes uint64 }

// matchesPattern selects the counters of ACLs.
const matchesPattern = "^/acl/[0-9]+/matches$"

// countMatches makes the dataplane count matches by rule. It waits for a ping after the message, as after a dump,
// because the reply of VPP has the message id of acl_del_reply (vl_api_acl_stats_intf_counters_enable_t_handler in
// acl.c of 25.10 and 26.06). The message cannot fail.
func countMatches(ctx context.Context, exchange exchangeAll) error {
	r := askAll(&acl.ACLStatsIntfCountersEnable{Enable: true}, &acl.ACLStatsIntfCountersEnableReply{})
	return exchange(ctx, []*request{r})
}

// ACLMatches reads the matches of all ACLs, by the dataplane's rules; it needs Options.CountMatches. An error of the
// stats segment wraps ErrStats.
func (s Statistics) ACLMatches(ctx context.Context) (map[ACLIndex][]Matches, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.options.Limit)
	defer cancel()
	entries, err := s.c.stats.entries(ctx, matchesPattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	all := make(map[ACLIndex][]Matches, len(entries))
	for _, e := range entries {
		var index ACLIndex
		data, is := e.Data.(adapter.CombinedCounterStat)
		if _, err := fmt.Sscanf(string(e.Name), "/acl/%d/matches", &index); err != nil || !is {
			continue
		}
		all[index] = sumOfThreads(data)
	}
	return all, nil
}

// sumOfThreads returns the matches of the rules of an ACL, which each thread of the dataplane counts for itself.
func sumOfThreads(threads adapter.CombinedCounterStat) (sums []Matches) {
	for _, thread := range threads {
		sums = append(sums, make([]Matches, max(0, len(thread)-len(sums)))...)
		for rule, n := range thread {
			sums[rule].Packets += n.Packets()
			sums[rule].Bytes += n.Bytes()
		}
	}
	return sums
}

// OriginMatches are the matches of the rules with the same origin and decision.
type OriginMatches struct {
	Origin string
	Permit bool
	Matches
}

// MatchesByOrigin sums the matches of an ACL by the origins of its rules, in their order; rules without an origin are
// not counted. matches are the counters of the dataplane's rules; ok is false if there are fewer counters than rules.
// There may be more: VPP has a counter more than rules, and keeps the counters of a longer ACL with the same index
// (validate_and_reset_acl_counters in acl.c of 25.10).
func MatchesByOrigin(v wire.ACL, matches []Matches) (sums []OriginMatches, ok bool) {
	type key struct {
		origin string
		permit bool
	}
	at := make(map[key]int)
	n := 0
	for i := range v.Rules {
		r := &v.Rules[i]
		end := n + entriesOf(r)
		if end > len(matches) {
			return nil, false
		}
		own := matches[n:end]
		n = end
		if r.Origin == "" {
			continue
		}
		k := key{r.Origin, r.Permit}
		if _, known := at[k]; !known {
			at[k] = len(sums)
			sums = append(sums, OriginMatches{Origin: r.Origin, Permit: r.Permit})
		}
		sum := &sums[at[k]]
		for _, m := range own {
			sum.Packets += m.Packets
			sum.Bytes += m.Bytes
		}
	}
	return sums, true
}
