package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// lastTransactions is the default number of transactions to show.
const lastTransactions = 20

func (c *client) transactionsCommand() *cobra.Command {
	var operations bool
	cmd := &cobra.Command{
		Use:     "transactions [N]",
		Aliases: []string{"txns"},
		Short:   "Lists the last N transactions of the scheduler, oldest first",
		Example: `  weftctl transactions          the last 20, one line each
  weftctl transactions 1        the last one with its operations
  weftctl transactions 5 --ops  the last five with their operations`,
		Args: usage(cobra.MatchAll(cobra.MaximumNArgs(1), isNumber)),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := uint64(lastTransactions)
			if len(args) == 1 {
				last, _ = strconv.ParseUint(args[0], 10, 32) // checked by Args
			}
			if !cmd.Flags().Changed("ops") {
				operations = last == 1
			}
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.transactions(ctx, agent, uint32(last), operations)
			})
		},
	}
	cmd.Flags().BoolVar(&operations, "ops", false, "show the operations (default if N is 1)")
	return cmd
}

func isNumber(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if n, err := strconv.ParseUint(args[0], 10, 32); err != nil || n == 0 {
		return fmt.Errorf("invalid number of transactions %q", args[0])
	}
	return nil
}

func (c *client) transactions(ctx context.Context, agent weftv1.OperationsClient, last uint32, operations bool) error {
	reply, err := agent.Transactions(ctx, &weftv1.TransactionsRequest{Last: last})
	if err != nil {
		return err
	}
	switch {
	case c.format != "table":
		records := make([]any, 0, len(reply.Transactions))
		for _, t := range reply.Transactions {
			records = append(records, recordOf(t.Json, t))
		}
		return c.document(map[string]any{"transactions": records})
	case operations && len(reply.Transactions) > 0:
		for i, t := range reply.Transactions {
			if i > 0 {
				c.printf("\n")
			}
			c.printTransaction(t)
		}
	default:
		c.printTransactions(reply.Transactions)
	}
	return nil
}

func (c *client) printTransactions(transactions []*weftv1.TransactionRecord) {
	g := newGrid("seq", "event", "time", "origin", "label", "ops", "took", "result")
	for _, t := range transactions {
		g.row(t.Seq, eventNumber(t.Event), c.clock(t.Start), t.Origin, t.Label, len(t.Operations), took(t.Took), c.transactionResult(t))
	}
	c.printGrid(g, "no transactions")
}

// printTransaction prints a line about the transaction, then its operations in order of execution.
func (c *client) printTransaction(t *weftv1.TransactionRecord) {
	c.printf("transaction %d  event %s  %s  %s  %s  %s  took %s  %s\n", t.Seq, eventNumber(t.Event), c.clock(t.Start),
		t.Origin, t.Label, counted(len(t.Operations), "operation"), took(t.Took), c.transactionResult(t))
	if len(t.Operations) > 0 {
		g := newGrid("level", "batch", "verb", "object", "at", "took", "why", "error")
		for _, op := range t.Operations {
			g.row(op.Level, op.Batch, op.Verb, op.Ref, took(op.At), took(op.Took), op.Why, c.bad(oneLine(op.Error)))
		}
		c.printGrid(g, "")
	}
	for _, w := range t.Waiting {
		c.printf("waiting: %s for %s\n", w.Ref, strings.Join(w.Missing, ", "))
	}
}

func (c *client) transactionResult(t *weftv1.TransactionRecord) string {
	result := c.result(t.Undone, t.Error)
	if len(t.Waiting) > 0 {
		result += ", " + counted(len(t.Waiting), "object") + " waiting"
	}
	return result
}

// eventNumber formats the number of the event that caused a transaction.
func eventNumber(seq uint64) string {
	if seq == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", seq)
}
