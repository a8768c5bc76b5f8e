package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

const (
	// requestTime is for how long the node of a block keeps a requested address for the requesting node. It is longer than
	// a claim takes.
	requestTime = time.Minute
	// claimTime bounds the time for which a pod waits for the node of a block to answer a request.
	claimTime = 10 * time.Second
	// claimPoll is the first pause between two reads of a block with a request. It doubles up to claimPollMost.
	claimPoll     = 25 * time.Millisecond
	claimPollMost = 500 * time.Millisecond
	// mostOffered is the number of addresses that a block can offer, as its type says.
	mostOffered = 64
)

// Static is a pod that needs this very address.
type Static struct {
	Pool           Pool
	Address        netip.Addr
	Namespace, Pod string // empty for a container without a pod

	requested bool // the API server has the request
}

// ErrHeld says that another node uses an address.
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

// Claim makes an address one that this node gives out, for a pod with that static address: it claims the address' block if
// no node has it, else it requests the single address from the node of the block. The error is an [ErrHeld] if a pod of
// another node has it.
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
			return k.withdraw(context.WithoutCancel(ctx), s)
		}
	}
}

// TryClaim is one step of [Keeper.Claim]. It reports false if another node, or the API server, has to act first.
func (k *Keeper) TryClaim(ctx context.Context, s *Static) (claimed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	block, err := s.Address.Prefix(s.Pool.Bits)
	if err != nil || !s.Pool.Has(block) {
		return false, fmt.Errorf("address %s is in no block of %s", s.Address, s.Pool)
	}
	if _, complete := k.config.Observed(); !complete || k.config.Owner() == "" {
		return false, fmt.Errorf("claim address %s: the API server has not shown this node's blocks and its Node yet", s.Address)
	}
	name := Name(s.Pool.Network, block)
	if k.held[name] == nil {
		claimed, err = k.claimStatic(ctx, s, block)
	} else {
		claimed, err = k.claimOwn(ctx, k.held[name], s)
	}
	if _, held := errors.AsType[ErrHeld](err); err != nil && !held {
		err = fmt.Errorf("claim address %s: %w", s.Address, err)
	}
	if err != nil {
		return false, err
	}
	return claimed, k.keep()
}

// claimStatic claims the block of an address, or requests the address from the block's node.
func (k *Keeper) claimStatic(ctx context.Context, s *Static, block netip.Prefix) (bool, error) {
	if l := k.loans[loanKey{s.Pool.Network, s.Address}]; l != nil && l.isOurs() && !l.closed {
		return true, nil
	}
	b, err := k.config.Store.Get(ctx, Name(s.Pool.Network, block))
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false, err
	case err == nil && b.DeletionTimestamp != nil:
		return false, nil
	case err == nil && b.Spec.Node != "":
		return k.claimSingle(ctx, b, s)
	}
	if most := k.marks().MaxBlocks; len(k.levelOf(s.Pool).blocks) >= most {
		return false, fmt.Errorf("its block %s is free, but this node has %d blocks of %s, which is the most (maxBlocks)", block, most, s.Pool)
	}
	if err == nil {
		return k.adopt(ctx, b)
	}
	return k.create(ctx, s.Pool, block)
}

// claimOwn gets an address of this node's block back that is offered or lent to other nodes.
func (k *Keeper) claimOwn(ctx context.Context, h *held, s *Static) (bool, error) {
	if !h.isOurs() || h.closed {
		return false, nil
	}
	if !slices.Contains(h.Withheld, s.Address) {
		return true, k.config.Local.Add(h.Block)
	}
	b, err := k.config.Store.Get(ctx, h.name)
	if err != nil || !k.isOurs(b) {
		return false, err
	}
	if err := k.refresh(h, b); err != nil {
		return false, err
	}
	if r := requestOf(b, s.Address); r == nil {
		if _, err := k.request(ctx, b, s); err != nil {
			return false, err
		}
	}
	k.Poke() // lend takes it back once no node borrows it
	return false, nil
}

// claimSingle borrows an address of another node's block, once that node offers it for this one.
func (k *Keeper) claimSingle(ctx context.Context, b *v1.IPBlock, s *Static) (bool, error) {
	if string(b.Spec.Node) == k.config.Node {
		k.Poke()
		return false, nil // Step holds it, or it is being released
	}
	loan, request := loanOf(b, s.Address), requestOf(b, s.Address)
	switch {
	case loan != nil && string(loan.Node) == k.config.Node:
		return k.takeStatic(b, s)
	case request != nil && string(request.Node) != k.config.Node:
		return false, k.holder(b, s.Address)
	case request == nil && s.requested:
		return false, k.holder(b, s.Address) // its node refused
	case request == nil:
		return k.request(ctx, b, s)
	}
	s.requested = true
	if loan != nil || !slices.Contains(b.Spec.Offered, v1.IP(s.Address.String())) {
		return false, nil
	}
	return k.borrowRequested(ctx, b, s)
}

// borrowRequested takes an address that is offered because this node requested it.
func (k *Keeper) borrowRequested(ctx context.Context, b *v1.IPBlock, s *Static) (bool, error) {
	b = b.DeepCopy()
	b.Spec.Requested = slices.DeleteFunc(b.Spec.Requested, isOf(s.Address))
	b.Spec.Borrowed = append(b.Spec.Borrowed, v1.Loan{
		Address: v1.IP(s.Address.String()), Node: v1.NodeName(k.config.Node), Namespace: s.Namespace, Pod: s.Pod,
	})
	updated, err := k.config.Store.Update(ctx, b)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		k.unanswered[s.Pool.Key()] = k.config.Now() // it may be written all the same
		return false, err
	}
	return k.takeStatic(updated, s)
}

// takeStatic uses a loan that a pod waits for.
func (k *Keeper) takeStatic(b *v1.IPBlock, s *Static) (bool, error) {
	for _, err := range k.takeLoans(b) {
		if err != nil {
			return false, err
		}
	}
	l := k.loans[loanKey{s.Pool.Network, s.Address}]
	if l == nil || !l.isOurs() || l.closed {
		return false, nil // Step decides
	}
	l.requested = k.config.Now()
	return true, nil
}

// request writes that this node wants an address of the block.
func (k *Keeper) request(ctx context.Context, b *v1.IPBlock, s *Static) (bool, error) {
	if len(b.Spec.Requested) >= mostOffered || len(b.Spec.Offered) >= mostOffered {
		return false, fmt.Errorf("block %s has %d addresses on loan or requested, which is the most", b.Name, mostOffered)
	}
	b = b.DeepCopy()
	b.Spec.Requested = append(b.Spec.Requested, v1.AddressRequest{
		Address: v1.IP(s.Address.String()), Node: v1.NodeName(k.config.Node), Namespace: s.Namespace, Pod: s.Pod,
	})
	_, err := k.config.Store.Update(ctx, b)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	s.requested = true
	return false, nil
}

// holder says which pod has an address of a block, or is to have it.
func (k *Keeper) holder(b *v1.IPBlock, address netip.Addr) ErrHeld {
	e := ErrHeld{Address: address, Node: string(b.Spec.Node)}
	if l := loanOf(b, address); l != nil {
		e.Node, e.Namespace, e.Pod = string(l.Node), l.Namespace, l.Pod
		return e
	}
	if r := requestOf(b, address); r != nil && string(r.Node) != k.config.Node {
		e.Node, e.Namespace, e.Pod = string(r.Node), r.Namespace, r.Pod
		return e
	}
	for _, a := range b.Status.Allocations {
		if string(a.Address) == address.String() {
			e.Namespace, e.Pod = a.Namespace, a.Pod
		}
	}
	return e
}

// withdraw removes a request that was not answered in time, and says who has the address. If it cannot, the node of the
// block removes the request later.
func (k *Keeper) withdraw(ctx context.Context, s Static) error {
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	block, _ := s.Address.Prefix(s.Pool.Bits)
	b, err := k.config.Store.Get(ctx, Name(s.Pool.Network, block))
	if err != nil {
		return fmt.Errorf("claim address %s: %w", s.Address, err)
	}
	held := k.holder(b, s.Address)
	if r := requestOf(b, s.Address); r != nil && string(r.Node) == k.config.Node {
		b = b.DeepCopy()
		b.Spec.Requested = slices.DeleteFunc(b.Spec.Requested, isOf(s.Address))
		if _, err := k.config.Store.Update(ctx, b); err != nil {
			k.config.Log.Debug("request for an address left to expire", "address", s.Address.String(), "err", err)
		}
	}
	if held.Pod == "" {
		return fmt.Errorf("claim address %s: node %s did not answer within %v", s.Address, held.Node, claimTime)
	}
	return held
}

func loanOf(b *v1.IPBlock, address netip.Addr) *v1.Loan {
	at := slices.IndexFunc(b.Spec.Borrowed, func(l v1.Loan) bool { return string(l.Address) == address.String() })
	if at < 0 {
		return nil
	}
	return &b.Spec.Borrowed[at]
}

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
