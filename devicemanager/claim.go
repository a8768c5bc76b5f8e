package devicemanager

import (
	"context"
	"slices"

	"github.com/weftnet/weft/pod"
)

// Claimable returns the ids of the devices that claims get.
func (m *Manager) Claimable() []string { return m.config.Devices.claimable() }

// Claim prepares the devices of a claim. A repeated call returns the same allocations, in the order of the devices.
func (m *Manager) Claim(ctx context.Context, claim pod.ClaimID, devices []pod.ClaimedDevice) ([]pod.Allocation, error) {
	defer m.requests.begin()()
	if err := m.disk.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.AllocateTimeout)
	defer cancel()
	ev := &pod.PrepareClaim{Claim: claim, Devices: devices}
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		return nil, err
	}
	// the commit of a repeated preparation has no effect
	if err := m.disk.ensure(ctx, m.table.ofClaim(claim.UID)); err != nil {
		return nil, err
	}
	m.config.Log.Info("claim prepared", "claim", claim.String(), "uid", claim.UID, "devices", len(devices),
		"took", rec.Took)
	return ev.Allocations, nil
}

// Unclaim releases the devices of a claim. It fails while an attachment uses one of them. An unknown claim is no error.
func (m *Manager) Unclaim(ctx context.Context, claim pod.ClaimID, reason string) error {
	if len(m.table.ofClaim(claim.UID)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.config.AllocateTimeout)
	defer cancel()
	if _, err := m.config.Loop.Do(ctx, &pod.ReleaseClaim{Claim: claim, Reason: reason}); err != nil {
		return err
	}
	m.config.Log.Info("claim released", "claim", claim.String(), "uid", claim.UID, "reason", reason)
	return nil
}

// Claims returns the prepared claims, oldest first.
func (m *Manager) Claims() (claims []pod.ClaimID) {
	for _, a := range m.table.claimed() {
		if !slices.Contains(claims, a.Claim.ClaimID) {
			claims = append(claims, a.Claim.ClaimID)
		}
	}
	return claims
}

// ClaimDirectory returns the directory of a claim's allocation in its containers.
func (m *Manager) ClaimDirectory(a *pod.Allocation) string { return m.layout.claimDirectory(a) }
