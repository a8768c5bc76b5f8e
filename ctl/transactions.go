package ctl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/proto/document"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// lastTransactions is the default number of transactions to show.
const lastTransactions = 20

func transactionsCommand(c *client) *cobra.Command {
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
			reply, err := call(cmd.Context(), c.agent, weftv1.OperationsClient.Transactions, &weftv1.TransactionsRequest{Last: uint32(last)})
			if err != nil {
				return err
			}
			records := make([]any, 0, len(reply.Transactions))
			for _, t := range reply.Transactions {
				records = append(records, document.Record(t.Json, t))
			}
			return c.show(map[string]any{"transactions": records}, func() { printTransactions(&c.printer, reply.Transactions, operations) })
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

func printTransactions(p *printer, transactions []*weftv1.TransactionRecord, operations bool) {
	g := newGrid("seq", "event", "time", "origin", "label", "ops", "took", "result")
	for i, t := range transactions {
		switch {
		case !operations:
			g.row(t.Seq, eventNumber(t.Event), p.clock(t.Start), t.Origin, t.Label, len(t.Operations), took(t.Took), transactionResult(p, t))
		case i > 0:
			p.printf("\n")
			fallthrough
		default:
			printTransaction(p, t)
		}
	}
	if !operations || len(transactions) == 0 {
		p.printGrid(g, "no transactions")
	}
}

// printTransaction prints a line about the transaction, then its operations in order of execution.
func printTransaction(p *printer, t *weftv1.TransactionRecord) {
	p.printf("transaction %d  event %s  %s  %s  %s  %s  took %s  %s\n", t.Seq, eventNumber(t.Event), p.clock(t.Start),
		t.Origin, t.Label, counted(len(t.Operations), "operation"), took(t.Took), transactionResult(p, t))
	if len(t.Operations) > 0 {
		g := newGrid("level", "batch", "verb", "object", "at", "took", "why", "error")
		for _, op := range t.Operations {
			g.row(op.Level, op.Batch, op.Verb, op.Ref, took(op.At), took(op.Took), op.Why, p.bad(oneLine(op.Error)))
		}
		p.printGrid(g, "")
	}
	for _, w := range t.Waiting {
		p.printf("waiting: %s for %s\n", w.Ref, strings.Join(w.Missing, ", "))
	}
}

func transactionResult(p *printer, t *weftv1.TransactionRecord) string {
	text := result(p, t.Undone, t.Error)
	if len(t.Waiting) > 0 {
		text += ", " + counted(len(t.Waiting), "object") + " waiting"
	}
	return text
}

// eventNumber formats the number of the event that caused a transaction.
func eventNumber(seq uint64) string {
	if seq == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", seq)
}
