package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

const (
	// requestTime is the time for which the node of a block keeps a requested address for the requesting node. It is
	// longer than a claim takes.
	requestTime = time.Minute
	// claimTime bounds the time for which a pod waits for the node of a block to answer a request.
	claimTime = 10 * time.Second
	// withdrawTime bounds the time to withdraw a request. The pod waits for that too.
	withdrawTime = 2 * time.Second
	// claimPoll is the first pause between two reads of a block with a request. It doubles up to claimPollMost.
	claimPoll     = 25 * time.Millisecond
	claimPollMost = 500 * time.Millisecond
	// mostOffered is the maximum number of addresses that the type of a block can offer.
	mostOffered = 64
)

// Static is a pod that needs one particular address.
type Static struct {
	Pool           PoolCIDR
	Address        netip.Addr
	Namespace, Pod string // empty for a container without a pod

	requested bool // the API server has the request
}

// ErrHeld means that another node uses an address.
type ErrHeld struct {
	Address        netip.Addr
	Node           string
	Namespace, Pod string // the pod that has it; empty if the node has not published one
}

// Error names the pod and the node.
func (e ErrHeld) Error() string {
	if e.Pod == "" {
		return fmt.Sprintf("address %s is held by node %s", e.Address, e.Node)
	}
	return fmt.Sprintf("address %s is held by pod %s/%s on node %s", e.Address, e.Namespace, e.Pod, e.Node)
}

// Claim makes an address available on this node, for a pod with that static address: it claims the block of the address
// if no node has it, else it requests the single address from the node of the block. The error is an [ErrHeld] if a pod
// of another node has the address.
func (k *Keeper) Claim(ctx context.Context, s Static) error {
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	for pause := claimPoll; ; pause = min(2*pause, claimPollMost) {
		claimed, err := k.TryClaim(ctx, &s)
		if claimed || err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return k.giveUp(context.WithoutCancel(ctx), &s)
		}
	}
}

// giveUp ends a claim that other nodes have not answered.
func (k *Keeper) giveUp(ctx context.Context, s *Static) error {
	ctx, cancel := context.WithTimeout(ctx, withdrawTime)
	defer cancel()
	end, err := k.begin(ctx)
	if err != nil {
		return fmt.Errorf("claim address %s: %w", s.Address, err)
	}
	defer end()
	return staticClaim{k, s}.withdraw(ctx)
}

// TryClaim is one step of [Keeper.Claim]. It returns false if another node, or the API server, must act first.
func (k *Keeper) TryClaim(ctx context.Context, s *Static) (claimed bool, err error) {
	end, err := k.begin(ctx)
	if err != nil {
		return false, fmt.Errorf("claim address %s: %w", s.Address, err)
	}
	defer end()
	block, err := s.Address.Prefix(s.Pool.Bits)
	if err != nil || !s.Pool.Has(block) {
		return false, fmt.Errorf("address %s is in no block of %s", s.Address, s.Pool)
	}
	if _, complete := k.config.Watch.Blocks(); !complete || k.config.Owner() == "" {
		return false, fmt.Errorf("claim address %s: the API server has not shown this node's blocks and its Node yet",
			s.Address)
	}
	if h := k.ledger.held[Name(s.Pool.Network, block)]; h != nil {
		claimed, err = staticClaim{k, s}.own(ctx, h)
	} else {
		claimed, err = staticClaim{k, s}.foreign(ctx, block)
	}
	if _, held := errors.AsType[ErrHeld](err); err != nil && !held {
		err = fmt.Errorf("claim address %s: %w", s.Address, err)
	}
	if err != nil {
		return false, err
	}
	return claimed, k.ledger.keep()
}

// staticClaim is a step of a claim of a single address. Its methods return false if another node must act first.
type staticClaim struct {
	*Keeper
	*Static
}

// foreign claims the block of the address, or requests the address from the block's node.
func (c staticClaim) foreign(ctx context.Context, block netip.Prefix) (bool, error) {
	if l := c.ledger.loans.all[addressKey{c.Pool.Network, c.Address}]; l != nil && l.isOurs() && !l.closed {
		return true, nil
	}
	b, err := c.ownership.read(ctx, Name(c.Pool.Network, block))
	switch {
	case err != nil:
		return false, err
	case b != nil && b.DeletionTimestamp != nil:
		return false, nil
	case nodeOf(b) != "":
		return c.single(ctx, b)
	}
	if most := c.marks().MaxBlocks; len(c.levelOf(c.Pool).blocks) >= most {
		return false, fmt.Errorf(
			"its block %s is free, but this node has %d blocks of %s, which is the most (maxBlocks)", block, most,
			c.Pool)
	}
	if b != nil {
		return c.ownership.holdClaimed(c.ownership.claims.adopt(ctx, b))
	}
	return c.ownership.holdClaimed(c.ownership.claims.create(ctx, c.Pool, block))
}

// own gets back an address of this node's block that is offered or lent to other nodes.
func (c staticClaim) own(ctx context.Context, h *held) (bool, error) {
	if !h.isOurs() || h.closed {
		return false, nil
	}
	if !slices.Contains(h.Withheld, c.Address) {
		return true, c.config.Local.Add(h.Block)
	}
	b, err := c.config.Store.Get(ctx, h.name)
	if err != nil || !c.ledger.isOurs(b) {
		return false, err
	}
	if err := c.ledger.refresh(h, b); err != nil {
		return false, err
	}
	if requestOf(b, c.Address) == nil {
		if err := c.request(ctx, b); err != nil {
			return false, err
		}
	}
	c.Poke() // lend takes the address back when no node borrows it
	return false, nil
}

// single borrows the address from another node's block, once that node offers it for this one.
func (c staticClaim) single(ctx context.Context, b *v1.IPBlock) (bool, error) {
	if string(b.Spec.Node) == c.config.Node {
		c.Poke()
		return false, nil // Step holds it, or it is being released
	}
	loan := loanOf(b, c.Address)
	request := requestOf(b, c.Address)
	switch {
	case loan != nil && string(loan.Node) == c.config.Node:
		return c.useLoan(b)
	case request != nil && string(request.Node) != c.config.Node,
		request == nil && c.requested: // the block's node refused
		return false, c.holder(b)
	case request == nil:
		return false, c.request(ctx, b)
	}
	c.requested = true
	if loan != nil || !slices.Contains(b.Spec.Offered, v1.IP(c.Address.String())) {
		return false, nil
	}
	return c.borrowRequested(ctx, b)
}

// borrowRequested borrows the address that is offered because this node requested it.
func (c staticClaim) borrowRequested(ctx context.Context, b *v1.IPBlock) (bool, error) {
	b = b.DeepCopy()
	b.Spec.Requested = slices.DeleteFunc(b.Spec.Requested, isOf(c.Address))
	b.Spec.Borrowed = append(b.Spec.Borrowed, v1.Loan{
		Address: v1.IP(c.Address.String()), Node: v1.NodeName(c.config.Node), Namespace: c.Namespace, Pod: c.Pod,
	})
	updated, err := c.config.Store.Update(ctx, b)
	switch {
	case isOvertaken(err):
		return false, nil
	case err != nil:
		c.ledger.loans.unanswered[c.Pool.Key()] = c.config.Now() // it may be written nevertheless
		return false, err
	}
	return c.useLoan(updated)
}

// useLoan uses the loan that the pod waits for.
func (c staticClaim) useLoan(b *v1.IPBlock) (bool, error) {
	if err := c.ledger.loans.take(b); err != nil {
		return false, err
	}
	l := c.ledger.loans.all[addressKey{c.Pool.Network, c.Address}]
	if l == nil || !l.isOurs() || l.closed {
		return false, nil // Step decides
	}
	l.requested = c.config.Now()
	return true, nil
}

// request writes that this node requests the address.
func (c staticClaim) request(ctx context.Context, b *v1.IPBlock) error {
	if len(b.Spec.Requested) >= mostOffered || len(b.Spec.Offered) >= mostOffered {
		return fmt.Errorf("block %s has %d addresses on loan or requested, which is the most", b.Name, mostOffered)
	}
	b = b.DeepCopy()
	b.Spec.Requested = append(b.Spec.Requested, v1.AddressRequest{
		Address: v1.IP(c.Address.String()), Node: v1.NodeName(c.config.Node), Namespace: c.Namespace, Pod: c.Pod,
	})
	if _, err := c.config.Store.Update(ctx, b); err != nil {
		return ignoring(isOvertaken, err)
	}
	c.requested = true
	return nil
}

// holder says which pod has the address, or has requested it.
func (c staticClaim) holder(b *v1.IPBlock) ErrHeld {
	e := ErrHeld{Address: c.Address, Node: string(b.Spec.Node)}
	if l := loanOf(b, c.Address); l != nil {
		e.Node = string(l.Node)
		e.Namespace = l.Namespace
		e.Pod = l.Pod
		return e
	}
	if r := requestOf(b, c.Address); r != nil && string(r.Node) != c.config.Node {
		e.Node = string(r.Node)
		e.Namespace = r.Namespace
		e.Pod = r.Pod
		return e
	}
	for _, a := range b.Status.Allocations {
		if string(a.Address) == c.Address.String() {
			e.Namespace = a.Namespace
			e.Pod = a.Pod
		}
	}
	return e
}

// withdraw removes an unanswered request, and returns the holder of the address. If that fails the node of the block
// removes the request later.
func (c staticClaim) withdraw(ctx context.Context) error {
	block, _ := c.Address.Prefix(c.Pool.Bits)
	b, err := c.config.Store.Get(ctx, Name(c.Pool.Network, block))
	if err != nil {
		return fmt.Errorf("claim address %s: %w", c.Address, err)
	}
	held := c.holder(b)
	if r := requestOf(b, c.Address); r != nil && string(r.Node) == c.config.Node {
		b = b.DeepCopy()
		b.Spec.Requested = slices.DeleteFunc(b.Spec.Requested, isOf(c.Address))
		if _, err := c.config.Store.Update(ctx, b); err != nil {
			c.config.Log.Debug("request for an address not withdrawn, it expires", "address", c.Address.String(),
				"err", err)
		}
	}
	if held.Pod == "" {
		return fmt.Errorf("claim address %s: node %s did not answer within %v", c.Address, held.Node, claimTime)
	}
	return held
}

// loanOf returns the loan of an address, or nil.
func loanOf(b *v1.IPBlock, address netip.Addr) *v1.Loan {
	at := slices.IndexFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Address) == address.String() })
	if at < 0 {
		return nil
	}
	return &b.Spec.Borrowed[at]
}

// requestOf returns the request for an address, or nil.
func requestOf(b *v1.IPBlock, address netip.Addr) *v1.AddressRequest {
	if b == nil {
		return nil
	}
	at := slices.IndexFunc(b.Spec.Requested, isOf(address))
	if at < 0 {
		return nil
	}
	return &b.Spec.Requested[at]
}
