package vpp

import (
	"context"
	"fmt"
	"strings"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/policer"
)

// violationsPattern selects the counters of the packets that policers dropped, by the index of the policer.
const violationsPattern = "^/net/policer/violate$"

// Violations reads how many packets exceeded the policers of Weft, by name; policers that dropped no packet are not
// listed. An error of the stats segment wraps ErrStats.
func (s Statistics) Violations(ctx context.Context) (map[string]Matches, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.options.Limit)
	defer cancel()
	entries, err := s.c.stats.entries(ctx, violationsPattern)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStats, err)
	}
	var names []*request // details have no index, so each policer is asked for by itself
	var counts []Matches
	for _, e := range entries {
		data, _ := e.Data.(adapter.CombinedCounterStat)
		for index, n := range sumOfThreads(data) {
			if n.Packets > 0 {
				dump := &policer.PolicerDumpV2{PolicerIndex: uint32(index)}
				names = append(names, askAll(dump, &policer.PolicerDetails{}))
				counts = append(counts, n)
			}
		}
	}
	if err := s.c.exchangeAll(ctx, names); err != nil {
		return nil, err
	}
	found := map[string]Matches{}
	for n, r := range names {
		for _, d := range listOf[*policer.PolicerDetails](r) {
			if name, ours := strings.CutPrefix(d.Name, tagPrefix); ours {
				found[name] = counts[n]
			}
		}
	}
	return found, nil
}
