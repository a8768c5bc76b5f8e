package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// record is the demo's view of a transaction.
type record struct {
	Seq    uint64      `json:"seq"`
	Origin string      `json:"origin"`
	Start  time.Time   `json:"start"`
	Undone bool        `json:"undone"`
	Ops    []operation `json:"operations"`
}

type operation struct {
	Ref     string `json:"ref"`
	Verb    string `json:"verb"`
	Why     string `json:"why"`
	Err     string `json:"error"`
	Outcome string `json:"outcome"`
}

// applied reports whether the operation changed the machine.
func (o operation) applied() bool { return o.Err == "" && o.Outcome == "applied" }

// fewest is the minimum number of operations that C's transaction must have applied, so that the undo is meaningful.
const fewest = 3

// showUndone shows the failed transaction, and expects that its applied operations were undone.
func (d *demo) showUndone(ctx context.Context) error {
	records, err := d.transactions(ctx)
	if err != nil {
		return err
	}
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Undone {
			return d.judgeUndone(records[i])
		}
	}
	return errors.New("weftctl transactions shows no undone transaction")
}

func (d *demo) judgeUndone(r record) error {
	applied := 0
	undone := 0
	for _, o := range r.Ops {
		switch {
		case o.applied() && o.Why == "undo":
			undone++
		case o.applied():
			applied++
		}
	}
	d.printf("its transaction %d: %d operations applied, %d to undo them", r.Seq, applied, undone)
	if applied < fewest || undone < applied {
		return fmt.Errorf("the transaction applied %d operations and undid %d; want at least %d, and all undone",
			applied, undone, fewest)
	}
	return nil
}

// showResync expects that the new agent's resync made no operations.
func (d *demo) showResync(ctx context.Context, since time.Time) error {
	records, err := d.transactions(ctx)
	if err != nil {
		return err
	}
	operations := 0
	found := false
	for _, r := range records {
		if r.Origin == "resync" && r.Start.After(since) {
			operations = operations + len(r.Ops)
			found = true
		}
	}
	if !found {
		return errors.New("weftctl transactions shows no resync")
	}
	d.printf("the new agent's resync made %d operations", operations)
	if operations != 0 {
		return errors.New("the resync made operations")
	}
	return nil
}

func (d *demo) transactions(ctx context.Context) ([]record, error) {
	text, err := d.node.Weftctl(ctx, "transactions", "-o", "json")
	if err != nil {
		return nil, err
	}
	var reply struct {
		Transactions []record `json:"transactions"`
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		return nil, fmt.Errorf("read weftctl transactions: %w", err)
	}
	return reply.Transactions, nil
}

func (d *demo) attachments(ctx context.Context) (string, error) {
	return d.node.Weftctl(ctx, "attachments", "-o", "yaml")
}

func (d *demo) showTransactions(ctx context.Context) error {
	text, err := d.node.Weftctl(ctx, "transactions")
	d.show(text)
	return err
}

func (d *demo) showEvents(ctx context.Context) error {
	text, err := d.node.Weftctl(ctx, "events")
	d.show(text)
	return err
}
