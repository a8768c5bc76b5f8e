package controller

import (
	"strings"
	"time"
)

// observer is told of the controller's work, as metrics are. Its methods must not block.
type observer interface {
	// Leads says whether this replica leads.
	Leads(leads bool)
	// Reconciled tells of one reconciliation of the objects of a kind.
	Reconciled(kind string, took time.Duration, err error)
	// Freed tells of blocks and loans of deleted nodes that were freed.
	Freed(blocks, loans int)
	// VNIs says how many VNIs are assigned.
	VNIs(n int)
	// Endpoints says how many addresses the kept EndpointSlices have.
	Endpoints(n int)
}

// unobserved is the observer of a controller without one.
type unobserved struct{}

func (unobserved) Leads(bool) {}

func (unobserved) Reconciled(string, time.Duration, error) {}

func (unobserved) Freed(int, int) {}

func (unobserved) VNIs(int) {}

func (unobserved) Endpoints(int) {}

// observation tells an observer of the controller's work.
type observation struct{ observer }

// reconciled runs a reconciliation of a kind, and tells the observer.
func (o observation) reconciled(kind string, reconcile func() error) error {
	began := time.Now()
	err := reconcile()
	o.Reconciled(kind, time.Since(began), err)
	return err
}

func (o observation) keptEndpoints(took time.Duration, addresses int, err error) {
	o.Reconciled("Service", took, err)
	o.Endpoints(addresses)
}

// collected counts what a collection freed, from the names of blocks and loans.
func (o observation) collected(names []string) {
	blocks := 0
	for _, name := range names {
		if strings.HasPrefix(name, "block ") {
			blocks++
		}
	}
	o.Freed(blocks, len(names)-blocks)
}
